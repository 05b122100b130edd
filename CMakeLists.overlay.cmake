# Settings that builds of the patched k2 need, but upstream does not.
#
# CMake reads this file at the end of k2's project() call, because of this option:
#
#   cmake -DCMAKE_PROJECT_k2_INCLUDE=<this file> ...
#
# So k2's own files need no edit for these settings.
#
# Variables of the command line:
#   PYTHON_EXECUTABLE   the interpreter to build for, which has torch
#   pybind11_DIR        the folder of pybind11's CMake package
#   mps_emulator_DIR    the folder of the emulator's CMake package, only on Linux
#                       with K2_WITH_MPS=ON
#   K2_FOR_WHEEL        whether the libraries are for a wheel
#   K2_UNITY            whether files that read torch's headers are compiled
#                       together, in one file for each processor.  Compilation is
#                       then several times as fast, but finds no missing includes.
#                       Default: ON, except for a wheel.
#   K2_PYTHON_SYMBOLS   only for a cross build for macOS: a file of linker options.
#                       The options allow only Python's symbols to be undefined.

# k2 searches for torch only if TORCH_LIBRARY is not set, and the search sets
# TORCH_LIBRARY.  Without this line, a second run of cmake would neither link torch
# nor use torch's compiler flags.
unset(TORCH_LIBRARY CACHE)

# If this target does not exist, torch's CMake package searches for CUDA's toolkit.
# k2 on the CPU and k2 on mps do not use the libraries that torch links with CUDA.
if(NOT K2_WITH_CUDA)
  add_library(torch::cudart INTERFACE IMPORTED)
  set(C10_CUDA_LIBRARY c10 CACHE STRING "Replaces torch's c10_cuda" FORCE)
  # CMake calls this function at the end of k2's top directory, after k2 has found
  # torch.
  function(k2_leave_cuda_out)
    if(TARGET torch_cuda_library)
      set_target_properties(torch_cuda_library PROPERTIES
        INTERFACE_COMPILE_DEFINITIONS ""
        INTERFACE_COMPILE_OPTIONS ""
        INTERFACE_LINK_LIBRARIES "")
    endif()
  endfunction()
  cmake_language(DEFER CALL k2_leave_cuda_out)
endif()

# k2 loads its helper modules with include(NAME), and some of them download
# packages.  The modules in this folder come first on the module path, so the
# configuration downloads nothing.
set(_k2_overlay_modules "${CMAKE_BINARY_DIR}/overlay")
list(PREPEND CMAKE_MODULE_PATH "${_k2_overlay_modules}")

# find_package() is called here, in the top directory, because imported targets
# belong to the directory of the call.
set(Python_EXECUTABLE "${PYTHON_EXECUTABLE}")
set(_k2_python Interpreter Development.Module)
if(CMAKE_CROSSCOMPILING)
  # The headers may belong to a Python other than the one that runs here.
  list(REMOVE_ITEM _k2_python Interpreter)
endif()
find_package(Python REQUIRED COMPONENTS ${_k2_python})
set(PYBIND11_FINDPYTHON ON)
# By default, pybind11 makes the linker optimize `_k2`.  The linker is one process,
# and takes longer than the rest of a build from ccache.  So only a wheel keeps this
# default, except a quick wheel, which is built with K2_UNITY.
if(K2_UNITY OR NOT K2_FOR_WHEEL)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF)
endif()
find_package(pybind11 CONFIG REQUIRED)

# k2's own pybind11 module would set these variables, which k2 uses.
set(PYTHON_INCLUDE_DIRS "${Python_INCLUDE_DIRS}")
set(PYTHON_VERSION_MAJOR "${Python_VERSION_MAJOR}")
set(PYTHON_VERSION_MINOR "${Python_VERSION_MINOR}")

file(WRITE "${_k2_overlay_modules}/pybind11.cmake"
  "message(STATUS \"pybind11 ${pybind11_VERSION}: ${pybind11_DIR}\")\n")
# CMake configures k2/torch, which needs this target.  `_k2` does not depend on
# k2/torch.
file(WRITE "${_k2_overlay_modules}/kaldifeat.cmake"
  "add_library(kaldifeat_core INTERFACE)\n")

# The emulator's target replaces Apple's frameworks.
if(K2_WITH_MPS AND NOT APPLE)
  find_package(mps_emulator CONFIG REQUIRED)
  add_library(k2_metal INTERFACE)
  target_link_libraries(k2_metal INTERFACE mps_emulator::metal)
  # The emulated device can have data pointers of either kind.  The emulator's
  # OperationUtils.h finds the buffer for both kinds.
  set(K2_TORCH_FINDS_BUFFERS ON)
endif()

if(K2_WITH_MPS AND CMAKE_CROSSCOMPILING)
  add_library(k2_metal INTERFACE)
  target_link_libraries(k2_metal INTERFACE
    "-framework Foundation" "-framework Metal")
  target_sources(k2_metal INTERFACE
    "${CMAKE_CURRENT_LIST_DIR}/tools/k2mps/build/macos/available.cc")
endif()

if(K2_ENABLE_TESTS)
  find_package(GTest REQUIRED)
  foreach(name IN ITEMS gtest gtest_main)
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE GTest::${name} GTest::gmock)
  endforeach()
  file(WRITE "${_k2_overlay_modules}/googletest.cmake" "")

  # CMake calls this function at the end of k2's top directory, when the targets
  # exist.
  function(k2_set_test_options)
    get_property(host DIRECTORY "${PROJECT_SOURCE_DIR}/k2/csrc/host"
      PROPERTY BUILDSYSTEM_TARGETS)
    list(FILTER host INCLUDE REGEX "_test$")
    get_property(others DIRECTORY "${PROJECT_SOURCE_DIR}/k2/csrc"
      PROPERTY BUILDSYSTEM_TARGETS)
    list(FILTER others INCLUDE REGEX "^cu_.*_test$")
    set(torch ${others})
    set(with_torch "^cu_mps_")
    list(FILTER torch INCLUDE REGEX "${with_torch}")
    list(FILTER others EXCLUDE REGEX "${with_torch}")
    set(gtest <gmock/gmock.h> <gtest/gtest.h>)
    set(core ${gtest} <k2/csrc/fsa_algo.h> <k2/csrc/ragged_ops.h>
      <k2/csrc/tensor_ops.h> <k2/csrc/test_utils.h>)
    if(K2_WITH_MPS)
      # With this header, tests that request a CUDA context get a context for mps.
      # This header must be the first, because it replaces a name in the headers
      # after it.
      list(PREPEND core
        "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/k2_mps_tests/upstream_cpp/mps_for_cuda.h")
    endif()
    k2_compile_tests("${host}" ${gtest} <k2/csrc/host/fsa_util.h>)
    k2_compile_tests("${others}" ${core})
    k2_compile_tests("${torch}" ${core} <torch/all.h>)
  endfunction()
  # Compiles the headers that these tests include once, for all of the tests.  Most
  # tests need most of their compile time for these headers.
  function(k2_compile_tests targets)
    list(POP_FRONT targets first)
    target_precompile_headers(${first} PRIVATE ${ARGN})
    foreach(target IN LISTS targets)
      target_precompile_headers(${target} REUSE_FROM ${first})
    endforeach()
    foreach(target IN LISTS first targets)
      # Without optimization, because most of the code runs only once.
      target_compile_options(${target} PRIVATE -O0)
    endforeach()
  endfunction()
  cmake_language(DEFER CALL k2_set_test_options)
endif()

if(NOT DEFINED K2_UNITY AND NOT K2_FOR_WHEEL)
  set(K2_UNITY ON)
endif()
if(K2_UNITY)
  # CMake calls this function at the end of k2's top directory, when the targets
  # exist.
  function(k2_compile_together)
    cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
    k2_share_out(_k2 ".")
    # The files of the library that include torch's headers.
    k2_share_out(context "(^|/)(mps/[^/]+|torch_util|pytorch_context)\\.cc$")
    k2_share_out(context "(^|/)mps/[^/]+\\.mm$")
  endfunction()
  # Gives each processor a file that includes its share of a target's sources.
  function(k2_share_out target pattern)
    get_target_property(sources ${target} SOURCES)
    get_target_property(folder ${target} SOURCE_DIR)
    list(FILTER sources INCLUDE REGEX "${pattern}")
    # The file with k2's version contains the id of the commit, so it is compiled
    # by itself.  Otherwise each new commit would compile a whole share again.
    list(FILTER sources EXCLUDE REGEX "(^|/)version\\.(cc|cu)$")
    # With relative paths, ccache also finds the objects in another build tree.
    set_target_properties(${target} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_MODE GROUP UNITY_BUILD_RELOCATABLE ON)
    # Consecutive sources go into one file, because they share more of the templates
    # that take most of the compile time.
    list(LENGTH sources count)
    set(index 0)
    foreach(source IN LISTS sources)
      math(EXPR share "${index} * ${cores} / ${count}")
      math(EXPR index "${index} + 1")
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}")
      set_source_files_properties(${source} TARGET_DIRECTORY ${target}
        PROPERTIES UNITY_GROUP ${share})
    endforeach()
  endfunction()
  cmake_language(DEFER CALL k2_compile_together)
endif()

if(K2_PYTHON_SYMBOLS)
  # This option replaces `-undefined dynamic_lookup`, which would hide every missing
  # symbol.
  set_target_properties(Python::Module PROPERTIES
    INTERFACE_LINK_OPTIONS "@${K2_PYTHON_SYMBOLS}")
endif()

if(K2_FOR_WHEEL)
  # The files of a wheel must not contain directories of the machine that built it.
  # CMAKE_CXX_FLAGS cannot contain these options, because k2 compiles the value of
  # CMAKE_CXX_FLAGS into a library.  If several options match a path, the compiler
  # uses the last one.
  add_compile_options(
    "-ffile-prefix-map=${CMAKE_CURRENT_LIST_DIR}=."
    "-ffile-prefix-map=${PROJECT_SOURCE_DIR}=."
    "-ffile-prefix-map=${PROJECT_BINARY_DIR}=."
  )

  # CMake calls this function at the end of k2's top directory, when the targets
  # exist.  In site-packages, `_k2` is next to the folder torch, and the libraries
  # are in k2/lib.
  function(k2_set_wheel_rpaths)
    set(origin "\$ORIGIN")
    if(APPLE)
      set(origin "@loader_path")
    endif()
    set_target_properties(_k2 k2_log fsa context PROPERTIES
      BUILD_WITH_INSTALL_RPATH ON
      INSTALL_RPATH_USE_LINK_PATH OFF
      INSTALL_RPATH "${origin};${origin}/../../torch/lib")
    set_target_properties(_k2 PROPERTIES
      INSTALL_RPATH "${origin}/k2/lib;${origin}/torch/lib")
    # k2's own linker option for the rpath loses its $ORIGIN before the linker reads
    # it.
    get_target_property(libraries _k2 LINK_LIBRARIES)
    list(FILTER libraries EXCLUDE REGEX "^-Wl,-rpath,")
    set_target_properties(_k2 PROPERTIES LINK_LIBRARIES "${libraries}")
  endfunction()
  cmake_language(DEFER CALL k2_set_wheel_rpaths)
endif()
