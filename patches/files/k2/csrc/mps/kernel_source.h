/**
 * Copyright      2026  The k2-mps authors
 *
 * See LICENSE for clarification regarding multiple authors
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#ifndef K2_CSRC_MPS_KERNEL_SOURCE_H_
#define K2_CSRC_MPS_KERNEL_SOURCE_H_

#include <cstddef>

// For each file of kernels, cmake generates a C++ file that contains the text
// of the kernels.  A generated file includes only this header.  With torch's
// headers, a generated file would take as long to compile as one of k2's
// largest sources.

namespace k2 {
namespace mps {

// A file of kernels, which the constructor registers under the file's name.
// Every KernelSource is a static object.
class KernelSource {
 public:
  /*
     `text` and `metallib` must stay valid until the process ends.

     @param [in] name      The name of the file without its extension.
     @param [in] text      The text of the file, with includes expanded.
     @param [in] metallib  The compiled file; may be null.
     @param [in] size      The number of bytes of metallib.
   */
  KernelSource(const char *name, const char *text,
               const unsigned char *metallib = nullptr, size_t size = 0);
};

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_KERNEL_SOURCE_H_
