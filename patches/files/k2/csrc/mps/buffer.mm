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

namespace k2 {
namespace mps {

// On mps, the data pointer of a storage is an MTLBuffer.
static id<MTLBuffer> BufferOf(const c10::Storage &storage) {
  return __builtin_bit_cast(id<MTLBuffer>, storage.mutable_data());
}

BufferAt BufferOf(const torch::Tensor &tensor) {
  return {BufferOf(tensor.storage()),
          static_cast<NSUInteger>(tensor.storage_offset() * tensor.itemsize())};
}

void *ContentsOf(const c10::Storage &storage) {
  return [BufferOf(storage) contents];
}

}  // namespace mps
}  // namespace k2
