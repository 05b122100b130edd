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

// OperationUtils.h includes the header of MPSGraph, so this header must exist.
#if K2_TORCH_FINDS_BUFFERS && \
    __has_include(<MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>)
#define K2_ASKS_TORCH 1
#include "ATen/native/mps/OperationUtils.h"
#endif

namespace k2 {
namespace mps {

namespace {

enum class Pointers {
  kBuffers,    // an MTLBuffer
  kAddresses,  // the host's address of the memory; see BufferByTorch()
  kUnknown,
};

// Returns the buffer that a function of torch's header finds.  Returns nil if
// k2 was built without this header.
id<MTLBuffer> BufferByTorch(const torch::Tensor &tensor) {
#if K2_ASKS_TORCH
  return at::native::mps::getMTLBufferStorage(tensor);
#else
  return nil;
#endif
}

// Looks at a new tensor to find out what data pointers are.  Sends Objective-C
// messages only to a pointer that torch returned as a buffer.
Pointers DetectPointers() {
  torch::Tensor tensor =
      torch::empty({1}, torch::device(torch::kMPS).dtype(torch::kInt));
  const void *data = tensor.storage().data();
  // getSharedBufferPtr() accepts a data pointer of either kind.
  const void *address =
      at::mps::getIMPSAllocator()->getSharedBufferPtr(data).first;
  if (address == nullptr) return Pointers::kUnknown;
  if (address != data) return Pointers::kBuffers;

  id<MTLBuffer> buffer = BufferByTorch(tensor);
  // If the function returns the data pointer itself, the header belongs to a
  // torch whose data pointers are buffers.
  if (buffer == nil || __builtin_bit_cast(const void *, buffer) == data)
    return Pointers::kUnknown;
  return [buffer contents] == data ? Pointers::kAddresses : Pointers::kUnknown;
}

Pointers KindOfPointers() {
  static const Pointers kind = DetectPointers();
  return kind;
}

// Dies if the kind is unknown.
Pointers CheckedKind() {
  K2_CHECK(KindOfPointers() != Pointers::kUnknown) << PointerProblem();
  return KindOfPointers();
}

}  // namespace

void *ContentsOf(const c10::Storage &storage) {
  void *data = storage.mutable_data();
  if (CheckedKind() == Pointers::kAddresses) return data;
  return [__builtin_bit_cast(id<MTLBuffer>, data) contents];
}

}  // namespace mps

std::string PointerProblem() {
  if (mps::KindOfPointers() != mps::Pointers::kUnknown) return "";
  return "This k2 does not know what the data pointers of torch " TORCH_VERSION
         " for mps are, and so cannot find the memory of a tensor.";
}

}  // namespace k2
