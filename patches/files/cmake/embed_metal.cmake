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

# Run with cmake -P.  Writes a C++ source that registers one Metal file under
# the file's name (see k2/csrc/mps/kernel_source.h).
#
#   NAME       the name, e.g. mutual_information
#   SOURCE     the .metal file
#   METALLIB   the compiled file; may be empty
#   ROOT       the folder that #include "k2/..." is relative to
#   OUTPUT     the C++ source to write

cmake_minimum_required(VERSION 3.16)

file(READ "${SOURCE}" text)
set(seen)
while(text MATCHES "(^|\n)#include \"([^\"\n]+)\"[^\n]*")
  set(line "${CMAKE_MATCH_0}")
  set(header "${CMAKE_MATCH_2}")
  set(body "")
  if(NOT header IN_LIST seen)
    list(APPEND seen "${header}")
    if(NOT EXISTS "${ROOT}/${header}")
      message(FATAL_ERROR "${SOURCE} includes ${header}, which is not a file "
        "of ${ROOT}")
    endif()
    file(READ "${ROOT}/${header}" body)
  endif()
  # The text of a header replaces the first #include of this header.  Later
  # #includes of the same header are removed.
  string(FIND "${text}" "${line}" begin)
  string(LENGTH "${line}" length)
  math(EXPR end "${begin} + ${length}")
  string(SUBSTRING "${text}" 0 ${begin} before)
  string(SUBSTRING "${text}" ${end} -1 behind)
  set(text "${before}\n${body}${behind}")
endwhile()

# The standard lets compilers limit a literal to 65,536 characters, so the
# source has several adjacent literals, which the compiler joins.
set(literals "")
set(delimiter "k2_metal")
string(LENGTH "${text}" length)
set(begin 0)
while(begin LESS length)
  string(SUBSTRING "${text}" ${begin} 8192 part)
  string(APPEND literals "    R\"${delimiter}(${part})${delimiter}\"\n")
  math(EXPR begin "${begin} + 8192")
endwhile()

set(array "")
set(arguments "")
if(METALLIB)
  file(READ "${METALLIB}" bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  set(line "0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,")
  string(REGEX REPLACE "(${line})" "    \\1\n" bytes "${bytes}")
  set(array "static const unsigned char k2_metallib[] = {\n${bytes}};\n\n")
  set(arguments ",\n    k2_metallib, sizeof(k2_metallib)")
endif()

file(WRITE "${OUTPUT}" "// Made from ${NAME}.metal by embed_metal.cmake.
#include \"k2/csrc/mps/kernel_source.h\"

${array}static const k2::mps::KernelSource k2_kernel_source(
    \"${NAME}\",
${literals}${arguments});
")
