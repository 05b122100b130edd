# CMake package of the emulator.
#
#   execute_process(COMMAND ${Python_EXECUTABLE} -c
#                     "import mps_emulator; print(mps_emulator.cmake_dir())"
#                   OUTPUT_VARIABLE mps_emulator_DIR
#                   OUTPUT_STRIP_TRAILING_WHITESPACE)
#   find_package(mps_emulator CONFIG REQUIRED)
#   target_link_libraries(my_extension PRIVATE mps_emulator::metal)
#
# The target mps_emulator::metal replaces a Mac's `-framework Metal -framework
# Foundation`.  The target has the headers, the options for Objective-C++
# sources, and the libraries in the order that the emulator needs.  The
# compilers of C++ and Objective-C++ must be clang.  The same sources compile on
# a Mac.

if(TARGET mps_emulator::metal)
  return()
endif()

include("${CMAKE_CURRENT_LIST_DIR}/mps_emulator-objc.cmake")
get_filename_component(_mps_emulator_root
  "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)

# For Objective-C++, CMake knows the linker's option for a run-time search path
# only on Apple's systems.  On Linux, C++ and Objective-C++ have the same
# option.
foreach(_mps_emulator_kind SHARED_LIBRARY EXECUTABLE)
  foreach(_mps_emulator_suffix FLAG FLAG_SEP)
    if(NOT CMAKE_${_mps_emulator_kind}_RUNTIME_OBJCXX_${_mps_emulator_suffix})
      set(CMAKE_${_mps_emulator_kind}_RUNTIME_OBJCXX_${_mps_emulator_suffix}
        "${CMAKE_SHARED_LIBRARY_RUNTIME_CXX_${_mps_emulator_suffix}}")
    endif()
  endforeach()
endforeach()

add_library(mps_emulator::library SHARED IMPORTED)
set_target_properties(mps_emulator::library PROPERTIES
  IMPORTED_LOCATION "${_mps_emulator_root}/libmps_emulator.so"
  IMPORTED_SONAME "libmps_emulator.so")

add_library(mps_emulator::metal INTERFACE IMPORTED)
set_target_properties(mps_emulator::metal PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${_mps_emulator_root}/include"
  INTERFACE_COMPILE_OPTIONS "${MPS_EMULATOR_OBJCXX_OPTIONS}")
# The compiler must find the headers in torch_include before torch's own
# headers.  The compiler searches -I before -isystem.  CMake uses -isystem for
# the include directories of imported targets like torch.
target_compile_options(mps_emulator::metal INTERFACE
  "$<$<COMPILE_LANGUAGE:OBJCXX>:-I${_mps_emulator_root}/torch_include>")
# The emulator must come before libobjc, because the emulator replaces
# objc_msg_lookup() of libobjc.  --no-as-needed keeps the emulator, libobjc and
# libBlocksRuntime, even if the program's own code uses only the emulator.
set_property(TARGET mps_emulator::metal PROPERTY INTERFACE_LINK_LIBRARIES
  "-Wl,--push-state,--no-as-needed" mps_emulator::library
  ${MPS_EMULATOR_OBJCXX_LIBRARIES} "-Wl,--pop-state")

set(mps_emulator_FOUND TRUE)
