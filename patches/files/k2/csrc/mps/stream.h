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

#ifndef K2_CSRC_MPS_STREAM_H_
#define K2_CSRC_MPS_STREAM_H_

#import <Metal/Metal.h>

#include <functional>

#include "torch/all.h"
#include "torch/mps.h"

// torch has one stream of work for the GPU, one command buffer that is open
// for encoding at a time, and a serial dispatch queue that guards both.

namespace k2 {
namespace mps {

/* Runs `f` inside of torch's dispatch queue for the GPU, and returns when `f`
   has returned.  Rethrows an exception of `f`.

   Must not be called from inside of that queue: the call would wait for itself.
 */
void RunInStream(const std::function<void()> &f);

/* Waits until the GPU is done with all work so far.  Without pending work, a
   call takes some tens of nanoseconds.  May be called from any thread, but not
   from inside of torch's dispatch queue.

   Throws what torch::mps::synchronize() throws.
 */
void Synchronize();

/* Returns the Metal buffer of a storage.

   @param [in] storage   On device mps, with at least one byte.
 */
inline id<MTLBuffer> BufferOf(const c10::Storage &storage) {
  return __builtin_bit_cast(id<MTLBuffer>, storage.mutable_data());
}

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_STREAM_H_
