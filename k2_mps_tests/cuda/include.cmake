# run.sh gives CMake this file as CMAKE_PROJECT_k2_INCLUDE, so that configuring k2 downloads nothing.
set(Python_EXECUTABLE "${PYTHON_EXECUTABLE}")
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
set(PYBIND11_FINDPYTHON ON)
find_package(pybind11 CONFIG REQUIRED)
set(PYTHON_INCLUDE_DIRS "${Python_INCLUDE_DIRS}")
set(PYTHON_VERSION_MAJOR "${Python_VERSION_MAJOR}")
set(PYTHON_VERSION_MINOR "${Python_VERSION_MINOR}")
set(modules "${CMAKE_BINARY_DIR}/modules")
list(PREPEND CMAKE_MODULE_PATH "${modules}")
file(WRITE "${modules}/pybind11.cmake" "")
file(WRITE "${modules}/kaldifeat.cmake"
  "add_library(kaldifeat_core INTERFACE)\n")
file(WRITE "${modules}/googletest.cmake" "
  add_subdirectory(${CMAKE_CURRENT_LIST_DIR}/googletest googletest EXCLUDE_FROM_ALL)
  target_link_libraries(gtest INTERFACE gmock)
")
