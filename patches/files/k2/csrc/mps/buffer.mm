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

#include "k2/csrc/mps/buffer.h"

#include <string>

#include "ATen/mps/MPSAllocatorInterface.h"
#include "k2/csrc/log.h"
#include "k2/csrc/mps/mps_context.h"
#include "torch/version.h"

namespace k2 {
namespace mps {

namespace {

// Looks at a new tensor to find out whether data pointers are buffers.
bool DetectBuffers() {
  torch::Tensor tensor =
      torch::empty({1}, torch::device(torch::kMPS).dtype(torch::kInt));
  const void *data = tensor.storage().data();
  // getSharedBufferPtr() accepts a buffer or an address, and returns an
  // address.
  const void *address =
      at::mps::getIMPSAllocator()->getSharedBufferPtr(data).first;
  return address != nullptr && address != data;
}

bool PointersAreBuffers() {
  static const bool ans = DetectBuffers();
  return ans;
}

}  // namespace

void *ContentsOf(const c10::Storage &storage) {
  K2_CHECK(PointersAreBuffers()) << PointerProblem();
  return [__builtin_bit_cast(id<MTLBuffer>, storage.mutable_data()) contents];
}

}  // namespace mps

std::string PointerProblem() {
  if (mps::PointersAreBuffers()) return "";
  return "This k2 does not know what the data pointers of torch " TORCH_VERSION
         " for mps are, and so cannot find the memory of a tensor.";
}

}  // namespace k2
