# Finds the headers, the libraries and the list of operators of the installed
# torch, and sets TORCH_INCLUDES, TORCH_LIBRARIES and TORCH_NATIVE_FUNCTIONS.
# torch's own TorchConfig.cmake is not used, because it needs a CUDA toolkit if
# torch was built with CUDA.

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
    "import importlib.util, os
spec = importlib.util.find_spec('torch')
print(os.path.dirname(spec.origin) if spec else '')"
  OUTPUT_VARIABLE TORCH_ROOT
  OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)

if(NOT EXISTS "${TORCH_ROOT}/include/ATen/mps/MPSStream.h")
  message(FATAL_ERROR
    "mps-emulator is compiled against the installed torch, but "
    "${Python_EXECUTABLE} has no torch with C++ headers. Install torch first, "
    "then use `pip install --no-build-isolation`.")
endif()

set(TORCH_INCLUDES
  "${TORCH_ROOT}/include" "${TORCH_ROOT}/include/torch/csrc/api/include")
set(TORCH_LIBRARIES
  "${TORCH_ROOT}/lib/libtorch_cpu.so" "${TORCH_ROOT}/lib/libc10.so")
set(TORCH_NATIVE_FUNCTIONS
  "${TORCH_ROOT}/../torchgen/packaged/ATen/native/native_functions.yaml")
if(NOT EXISTS "${TORCH_NATIVE_FUNCTIONS}")
  message(FATAL_ERROR
    "torch's own list of operators, which its wheels carry, is missing: "
    "${TORCH_NATIVE_FUNCTIONS}. Install torch from a wheel.")
endif()
message(STATUS "torch: ${TORCH_ROOT}")
