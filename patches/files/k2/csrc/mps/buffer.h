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

// Finds the memory of torch's tensors on mps.  Up to torch 2.15, the data
// pointer of a storage is the storage's MTLBuffer.  In a later torch, it may be
// something else.  k2 first asks torch's allocator, because an Objective-C
// message to a mere address would end the process.  If the pointer is no
// buffer, PointerProblem() in mps_context.h returns a message.

namespace k2 {
namespace mps {

/* Returns the host's address of the first byte of a storage; nullptr if the
   host cannot read the storage.

   Dies if PointerProblem() is not empty.

   @param [in] storage   On device mps, with at least one byte.
 */
void *ContentsOf(const c10::Storage &storage);

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_BUFFER_H_
