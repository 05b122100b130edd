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

// k2's interface to Metal.  A kernel is a function in a file of
// k2/csrc/mps/kernels.  k2's library contains the text of each file (see
// cmake/embed_metal.cmake).  If Metal's compiler was available at build time,
// the library also contains the compiled file.  If the compiled file is missing
// or the system does not load it, a process compiles the text when it first
// uses a kernel of the file.  This header is plain C++, so that code that
// launches kernels can be plain C++ too.

namespace k2 {
namespace mps {

// The size of a dispatch.  All threadgroups have the same number of threads.
struct Grid {
  uint32_t threadgroups;
  uint32_t threads_per_threadgroup;
};

// An argument of a kernel.  Headers that kernels and host share have an
// enumerator for each argument.  The kernel declares the argument as
// [[buffer(enumerator)]].  The host passes the argument to Launch() as an In()
// or as an Out().
struct Argument {
  int32_t number;        // the enumerator
  torch::Tensor tensor;  // undefined if the argument is a struct of parameters
  std::string bytes;     // the struct; empty if the argument is a tensor
  bool writes;           // whether the kernel may write the tensor
};
using Arguments = std::vector<Argument>;

// Returns an argument that the kernel only reads, and declares as `device
// const`.  The kernel gets a pointer to the first element of `tensor`, which
// must be on device mps.  The tensor must have elements, because Metal has no
// empty buffers.
inline Argument In(int32_t number, const torch::Tensor &tensor) {
  return {number, tensor, {}, false};
}

// Returns an argument with the kernel's parameters, which the kernel declares
// as `constant`.  The parameters are a struct of at most 4096 bytes that host
// and kernel share.
template <typename T,
          typename = std::enable_if_t<std::is_trivially_copyable<T>::value>>
inline Argument In(int32_t number, const T &params) {
  static_assert(sizeof(T) <= 4096, "Metal takes 4096 bytes at most");
  return {number,
          {},
          std::string(reinterpret_cast<const char *>(&params), sizeof(T)),
          false};
}

// Returns an argument that the kernel may read and write, and declares as
// `device`.  The tensor must be on device mps and have elements.
inline Argument Out(int32_t number, const torch::Tensor &tensor) {
  return {number, tensor, {}, true};
}

// Returns the arguments of both lists.
inline Arguments Join(Arguments arguments, const Arguments &more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/* Encodes one dispatch of a kernel on torch's stream, without a wait.  The
   kernel runs after all work that was encoded before it, and before all later
   work.

   Dies if the kernel does not exist or does not compile, or if the grid has
   more threads in a threadgroup than the kernel can have.  The message has the
   kernel's name, and the compiler's message if there is one.  Throws if an
   earlier kernel has failed on the GPU, see ThrowIfFailed() in stream.h.

   @param [in] source      The name of the kernel's file without its extension.
   @param [in] kernel      The name of the function in the file.
   @param [in] grid        The size of the dispatch.  If there are no threads,
                           nothing is encoded.
   @param [in] arguments   All arguments of the kernel, each once, in any order.
 */
void Launch(const std::string &source, const std::string &kernel, Grid grid,
            const Arguments &arguments);

// Returns how many launches the GPU has failed to complete so far.  If the
// number has changed, what an earlier launch has written may be wrong.
uint64_t NumFailures();

// The arguments that all launches of a kernel have passed.  Bit i of a number
// stands for the argument with the number i.
struct PassedArguments {
  std::string source;  // as for Launch()
  std::string kernel;
  uint32_t in;   // what a launch has passed with In()
  uint32_t out;  // what a launch has passed with Out()
};

// Returns the arguments of each kernel that this process has launched.  Tests
// compare them with the arguments that the kernel declares.
std::vector<PassedArguments> GetPassedArguments();

/* Commits torch's open command buffer, without a wait.  Divide long work among
   command buffers: macOS stops a command buffer with an error if the command
   buffer keeps the GPU from drawing the screen for some seconds.
 */
void Commit();

/* Returns how many threads a threadgroup of this kernel may have: at most 1024,
   fewer if the kernel uses many registers.  Dies if the kernel does not exist
   or does not compile.

   @param [in] device_of  A tensor with elements, on the kernel's device.
 */
uint32_t MaxThreadsPerThreadgroup(const std::string &source,
                                  const std::string &kernel,
                                  const torch::Tensor &device_of);

// Returns the bytes of threadgroup memory that a threadgroup of this kernel
// takes.  Arguments and errors are those of MaxThreadsPerThreadgroup().
uint32_t ThreadgroupMemory(const std::string &source, const std::string &kernel,
                           const torch::Tensor &device_of);

// Returns the number of cores of the GPU, see NumWaves() in grid.h.  If torch
// does not know the number, for example in a virtual machine, returns 8, the
// number of cores of an M1.
uint32_t NumCores();

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_METAL_H_
