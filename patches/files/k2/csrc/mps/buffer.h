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

#ifndef K2_CSRC_MPS_BUFFER_H_
#define K2_CSRC_MPS_BUFFER_H_

#import <Metal/Metal.h>

#include "torch/all.h"

// Finds the memory of torch's tensors on mps.

namespace k2 {
namespace mps {

// Where a tensor's data begins, in the form that an encoder needs.
struct BufferAt {
  id<MTLBuffer> buffer;  // NOT owned here: the tensor owns it
  NSUInteger offset;     // in bytes
};

/* Returns where a tensor's first element is.

   @param [in] tensor   On device mps, with elements.
 */
BufferAt BufferOf(const torch::Tensor &tensor);

/* Returns the host's address of the first byte of a storage; nullptr if the
   host cannot read the storage.

   @param [in] storage   On device mps, with at least one byte.
 */
void *ContentsOf(const c10::Storage &storage);

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_BUFFER_H_
