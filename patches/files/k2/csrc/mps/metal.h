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

#ifndef K2_CSRC_MPS_METAL_H_
#define K2_CSRC_MPS_METAL_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "k2/csrc/mps/kernel_source.h"
#include "torch/all.h"

// All that k2 says to Metal.  A kernel is a function of a file of
// k2/csrc/mps/kernels.  Its text is part of the library (see
// cmake/embed_metal.cmake), and so is what Metal's compiler made of it, if one
// was there.  Where that is missing or the system does not load it, the text
// is compiled once per process, when a kernel of it is first used.  This
// header is plain C++, and so is who launches kernels.

namespace k2 {
namespace mps {

// The size of a dispatch.  Each threadgroup has all of its threads.
struct Grid {
  uint32_t threadgroups;
  uint32_t threads_per_threadgroup;
};

// What is bound to one [[buffer(i)]] of a kernel.
class Argument {
 public:
  // The memory of a tensor on device mps, from its first element on.  The
  // tensor must have elements, since Metal has no empty buffers.
  Argument(const torch::Tensor &tensor) : tensor_(tensor) {}  // NOLINT

  // The bytes of a struct that host and kernel share, 4096 at most.
  template <typename T,
            typename = std::enable_if_t<std::is_trivially_copyable<T>::value>>
  Argument(const T &value)  // NOLINT
      : bytes_(reinterpret_cast<const char *>(&value), sizeof(T)) {
    static_assert(sizeof(T) <= 4096, "Metal takes 4096 bytes at most");
  }

  bool IsTensor() const { return tensor_.defined(); }
  const torch::Tensor &tensor() const { return tensor_; }
  const std::string &bytes() const { return bytes_; }

 private:
  torch::Tensor tensor_;
  std::string bytes_;
};

/* Encodes one dispatch of a kernel on torch's stream.  It runs after all work
   that was encoded before, and before all that comes later; nothing waits for
   it here.

   Dies with the name of the kernel, and the compiler's text if there is one,
   on a kernel that does not exist or does not compile, and on a grid beyond
   what the kernel may have.

   @param [in] source      The name of the file without its extension.
   @param [in] kernel      The name of the function in it.
   @param [in] grid        The number of threads.  Nothing is encoded if it is
                           zero.
   @param [in] arguments   What is bound to [[buffer(0)]], [[buffer(1)]], ...
 */
void Launch(const std::string &source, const std::string &kernel, Grid grid,
            const std::vector<Argument> &arguments);

/* Returns how many threads a threadgroup of this kernel may have, at most
   1024.  Depends on the registers that it uses.  Dies as Launch() does.

   @param [in] device_of  A tensor with elements on the device to ask for.
 */
uint32_t MaxThreadsPerThreadgroup(const std::string &source,
                                  const std::string &kernel,
                                  const torch::Tensor &device_of);

// Returns how many cores the GPU has, each of which runs one threadgroup or a
// few; 1 where torch cannot tell, as may be in a virtual machine.
uint32_t NumCores();

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_METAL_H_
