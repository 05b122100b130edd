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
#   K2_WITH_MPS   whether to build the backend
# Defines
#   k2_metal      with K2_WITH_MPS, an interface target that links Apple's
#                 frameworks Metal and Foundation.  A project that builds k2
#                 with another Metal may define the target before.
#   k2_use_mps(<target>)
#                 with K2_WITH_MPS, adds the backend to a target of k2/csrc, and
#                 adds K2_WITH_MPS=1 to all code that links the target.  Without
#                 K2_WITH_MPS, the function does nothing.

# The sources of the backend, in Objective-C++.
# please keep it sorted
set(k2_mps_srcs
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
    # k2 needs torch to allocate tensors in memory that the host can read.
    message(FATAL_ERROR "K2_WITH_MPS needs torch 2.12 or newer. "
      "This is torch ${K2_TORCH_VERSION}.")
  endif()

  if(NOT APPLE AND NOT TARGET k2_metal)
    message(FATAL_ERROR "K2_WITH_MPS needs Metal, which only macOS has.")
  endif()

  set(CMAKE_OBJCXX_STANDARD ${CMAKE_CXX_STANDARD})
  set(CMAKE_OBJCXX_EXTENSIONS OFF)
  enable_language(OBJCXX)
  string(APPEND CMAKE_OBJCXX_FLAGS " ${TORCH_CXX_FLAGS}")

  if(NOT TARGET k2_metal)
    add_library(k2_metal INTERFACE)
    target_link_libraries(k2_metal INTERFACE
      "-framework Foundation" "-framework Metal")
  endif()
endif()

function(k2_use_mps target)
  if(NOT K2_WITH_MPS)
    return()
  endif()
  target_link_libraries(${target} PRIVATE k2_metal)
  target_compile_definitions(${target} PUBLIC K2_WITH_MPS=1)
  target_sources(${target} PRIVATE ${k2_mps_srcs})
endfunction()
