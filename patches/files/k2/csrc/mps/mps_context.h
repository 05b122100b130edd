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

#ifndef K2_CSRC_MPS_MPS_CONTEXT_H_
#define K2_CSRC_MPS_MPS_CONTEXT_H_

#include <stdexcept>

#include "k2/csrc/context.h"
#include "k2/csrc/log.h"
#include "torch/all.h"

// k2 on torch's mps device.
//
// The GPU of an Apple device shares the memory of the host.  A context of type
// kMps allocates memory with torch's allocator for mps, and Region::data is the
// host's address of this memory.  k2's code for the host reads and writes the
// memory in place, after Context::SyncIfOnHost() has waited for the GPU.  A
// tensor becomes a Region, and a Region becomes a tensor, without a copy.
//
// In a build without K2_WITH_MPS, HasMps() is false, and the other functions
// die with an explanation.

namespace k2 {

// torch has mps from 1.12 on.
#if K2_TORCH_VERSION_MAJOR > 1 || K2_TORCH_VERSION_MINOR >= 12
constexpr torch::DeviceType kTorchMps = torch::kMPS;
#else
// the type of no device
constexpr torch::DeviceType kTorchMps =
    torch::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES;
#endif

inline bool IsMps(torch::Device device) { return device.type() == kTorchMps; }

// Returns whether k2 was built with K2_WITH_MPS and torch finds an mps device.
bool HasMps();

/* Returns the context of torch's mps device (there is one such device).

   Dies with an explanation if k2 was built without K2_WITH_MPS, or torch finds
   no mps device.
 */
ContextPtr GetMpsContext();

/* Returns a Region that shares the memory of `tensor` and keeps it alive.

   @param [in] tensor   On device mps, of any shape, strides and dtype.
   @return   A region in GetMpsContext().  `data` is the address of the tensor's
             first element.  `num_bytes` is the number of bytes from this
             address to the end of the tensor's storage.
 */
RegionPtr NewMpsRegion(const torch::Tensor &tensor);

/* Returns a tensor that shares the memory of `region` and keeps it alive (see
   ToTorch() in torch_util.h).

   @param [in] region   A region of GetMpsContext().
   @param [in] data     The address of the first element, inside of `region`.
   @param [in] sizes    The shape of the tensor.
   @param [in] strides  Its strides, in elements.
   @param [in] dtype    The type of its elements.
   @return  A tensor on device mps; on the CPU if `dtype` is torch.float64,
            because a tensor on mps cannot be torch.float64.
 */
torch::Tensor MpsToTorch(const RegionPtr &region, void *data,
                         torch::IntArrayRef sizes, torch::IntArrayRef strides,
                         torch::ScalarType dtype);

/* Returns a tensor with the memory, shape and strides of `tensor`, and with
   elements of type `dtype`.  The result is detached from the autograd graph.

   @param [in] tensor   On device mps.
   @param [in] dtype    A type of the same size as the type of `tensor`.
 */
torch::Tensor MpsReinterpret(const torch::Tensor &tensor,
                             torch::ScalarType dtype);

/* Waits until the GPU is done with all work so far, then returns the host's
   address of the tensor's first element.

   @param [in] tensor   On device mps.
   @return  The address, which is valid as long as the tensor's storage lives;
            nullptr if the tensor's storage is empty.
 */
void *MpsHostPtr(const torch::Tensor &tensor);

#if !K2_WITH_MPS

inline bool HasMps() { return false; }

inline ContextPtr GetMpsContext() {
  throw std::runtime_error(
      "k2 was not built with MPS. Please build it with -DK2_WITH_MPS=ON on an "
      "Apple device.");
}

// Each of the following functions needs a tensor or a region on mps, and cannot
// do its work without K2_WITH_MPS.  So each function throws the error of
// GetMpsContext().

inline RegionPtr NewMpsRegion(const torch::Tensor &) {
  GetMpsContext();
  return nullptr;
}

inline torch::Tensor MpsToTorch(const RegionPtr &, void *, torch::IntArrayRef,
                                torch::IntArrayRef, torch::ScalarType) {
  GetMpsContext();
  return {};
}

inline torch::Tensor MpsReinterpret(const torch::Tensor &, torch::ScalarType) {
  GetMpsContext();
  return {};
}

inline void *MpsHostPtr(const torch::Tensor &) {
  GetMpsContext();
  return nullptr;
}

#endif  // !K2_WITH_MPS

}  // namespace k2

#endif  // K2_CSRC_MPS_MPS_CONTEXT_H_
