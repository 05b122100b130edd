# Copyright     2026  The k2-mps authors
#
# See ../LICENSE for clarification regarding multiple authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

# The MPS backend: k2 on the GPU of an Apple device, through Metal.
#
# Reads
#   K2_WITH_MPS         whether to build the backend
#   K2_TORCH_FINDS_BUFFERS
#                       whether k2 calls a function of torch's header
#                       OperationUtils.h to find the buffer of a tensor.  By
#                       default k2 calls the function from torch 2.16 on.  Up to
#                       2.15, the tensor's data pointer is the buffer.
#   K2_METAL_COMPILER   the program that compiles Metal.  The default is Xcode's
#                       compiler if there is one.  With a compiler, the library
#                       contains compiled kernels in addition to the text of the
#                       kernels, so that a process need not compile them.
# Defines
#   k2_metal      with K2_WITH_MPS, an interface target that links Apple's
#                 frameworks Metal and Foundation.  A toolchain may define the
#                 target instead.
#   k2_use_mps(<target>)
#                 with K2_WITH_MPS, adds the backend to a target of k2/csrc, and
#                 adds K2_WITH_MPS=1 to all code that links the target.  Without
#                 K2_WITH_MPS, the function does nothing.

# The sources of the backend: .mm files are Objective-C++, .cu and .cc files are
# C++ as everywhere in k2, and .metal files are kernels.
# please keep it sorted
set(k2_mps_srcs
  mps/buffer.mm
  mps/mps_context.mm
  mps/stream.mm
)

if(K2_WITH_MPS)
  if(CMAKE_VERSION VERSION_LESS 3.16)
    message(FATAL_ERROR "K2_WITH_MPS needs CMake 3.16 or newer, the first one "
      "that compiles Objective-C++. This is CMake ${CMAKE_VERSION}.")
  endif()
  if(K2_WITH_CUDA OR K2_WITH_HIP)
    message(FATAL_ERROR "Please choose one of K2_WITH_MPS, K2_WITH_CUDA and "
      "K2_WITH_HIP.")
  endif()
  if(K2_TORCH_VERSION VERSION_LESS 2.12)
    # torch before 2.12 allocates tensors in memory that the host cannot read.
    message(FATAL_ERROR "K2_WITH_MPS needs torch 2.12 or newer. "
      "This is torch ${K2_TORCH_VERSION}.")
  endif()

  if(NOT DEFINED K2_TORCH_FINDS_BUFFERS AND
      K2_TORCH_VERSION VERSION_GREATER_EQUAL 2.16)
    set(K2_TORCH_FINDS_BUFFERS ON)
  endif()

  set(CMAKE_OBJCXX_STANDARD ${CMAKE_CXX_STANDARD})
  set(CMAKE_OBJCXX_EXTENSIONS OFF)
  enable_language(OBJCXX)
  string(APPEND CMAKE_OBJCXX_FLAGS " ${TORCH_CXX_FLAGS}")

  if(NOT TARGET k2_metal)
    if(NOT APPLE)
      message(FATAL_ERROR "K2_WITH_MPS needs Metal, which only macOS has.")
    endif()
    add_library(k2_metal INTERFACE)
    target_link_libraries(k2_metal INTERFACE
      "-framework Foundation" "-framework Metal")
  endif()

  if(NOT DEFINED K2_METAL_COMPILER AND CMAKE_HOST_APPLE)
    execute_process(COMMAND xcrun -sdk macosx -find metal
      OUTPUT_VARIABLE compiler OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(compiler)
      # xcrun may find a program that only tells the user to download the
      # compiler.  So compile a kernel as a test.
      set(probe ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/k2_metal_probe)
      file(WRITE ${probe}.metal "kernel void probe() {}\n")
      execute_process(
        COMMAND ${compiler} -o ${probe}.metallib ${probe}.metal
        RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
      if(NOT status EQUAL 0)
        set(compiler "")
      endif()
    endif()
    set(K2_METAL_COMPILER "${compiler}" CACHE FILEPATH
      "The program that compiles Metal, or nothing")
  endif()
  if(K2_METAL_COMPILER)
    message(STATUS "Compiling Metal with: ${K2_METAL_COMPILER}")
  else()
    message(STATUS "Compiling Metal: at run time")
  endif()
endif()

# Sets a variable to the path of a C++ source that is made from a kernel file.
# The source contains the file's text.  The text of each header of k2 replaces
# the #include line of this header, because Metal compiles a single string.
# With K2_METAL_COMPILER, the source also contains the compiled file.
function(k2_embed_metal variable kernel)
  get_filename_component(name ${kernel} NAME_WE)
  get_filename_component(kernel ${kernel} ABSOLUTE)
  get_filename_component(dir ${kernel} DIRECTORY)
  # Any kernel file may include any of these headers.
  file(GLOB headers CONFIGURE_DEPENDS ${dir}/*.h
    ${PROJECT_SOURCE_DIR}/k2/csrc/best_path_rounding.h)
  set(embedded ${CMAKE_CURRENT_BINARY_DIR}/mps/kernels/${name}.cc)
  set(metallib "")
  if(K2_METAL_COMPILER)
    set(metallib ${CMAKE_CURRENT_BINARY_DIR}/mps/kernels/${name}.metallib)
    # The options must be the same as for newLibraryWithSource in metal.mm.
    add_custom_command(OUTPUT ${metallib}
      COMMAND ${K2_METAL_COMPILER} -fno-fast-math
        -mmacosx-version-min=14.0 -I ${PROJECT_SOURCE_DIR}
        -o ${metallib} ${kernel}
      DEPENDS ${kernel} ${headers}
      COMMENT "Compiling k2/csrc/mps/kernels/${name}.metal"
      VERBATIM)
  endif()
  add_custom_command(OUTPUT ${embedded}
    COMMAND ${CMAKE_COMMAND} -DNAME=${name} -DSOURCE=${kernel}
      -DMETALLIB=${metallib}
      -DROOT=${PROJECT_SOURCE_DIR} -DOUTPUT=${embedded}
      -P ${PROJECT_SOURCE_DIR}/cmake/embed_metal.cmake
    DEPENDS ${kernel} ${headers} ${metallib}
      ${PROJECT_SOURCE_DIR}/cmake/embed_metal.cmake
    COMMENT "Embedding k2/csrc/mps/kernels/${name}.metal"
    VERBATIM)
  set(${variable} ${embedded} PARENT_SCOPE)
endfunction()

function(k2_use_mps target)
  if(NOT K2_WITH_MPS)
    return()
  endif()
  target_link_libraries(${target} PRIVATE k2_metal)
  target_compile_definitions(${target} PUBLIC K2_WITH_MPS=1)
  if(K2_TORCH_FINDS_BUFFERS)
    target_compile_definitions(${target} PRIVATE K2_TORCH_FINDS_BUFFERS=1)
  endif()
  foreach(source IN LISTS k2_mps_srcs)
    if(source MATCHES "\\.cu$")
      transform(OUTPUT_VARIABLE source SRCS ${source})
    elseif(source MATCHES "\\.metal$")
      k2_embed_metal(source ${source})
    endif()
    target_sources(${target} PRIVATE ${source})
  endforeach()
endfunction()
