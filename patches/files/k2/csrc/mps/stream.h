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
#include <string>

#include "torch/all.h"
#include "torch/mps.h"

// torch has a stream of work for the GPU, with one command buffer that is open
// for encoding at a time, and a serial dispatch queue that guards both.  From
// 2.15 on it has several streams, and each thread has a current one.  Then "the
// stream" below is the current stream of the calling thread.

namespace k2 {
namespace mps {

/* Runs `f` inside of the dispatch queue of the stream, and returns when `f` has
   returned.  Rethrows an exception of `f`.

   Must not be called from inside of that queue: the call would wait for itself.
 */
void RunInStream(const std::function<void()> &f);

/* Waits until the GPU is done with all work so far, of all threads and of all
   of torch's streams.  Without pending work, a call takes some tens of
   nanoseconds; after a program's first torch.mps.Stream(), it takes that time
   for each of torch's 33 streams.  May be called from any thread, but not from
   inside of torch's dispatch queue.

   Throws what ThrowIfFailed() or torch::mps::synchronize() throws.
 */
void Synchronize();

/* Lets ThrowIfFailed() report a kernel.  Call this before the commit.

   @param [in] commands   The command buffer in which the kernel is encoded.
   @param [in] kernel     The kernel's label.
 */
void NoteKernel(id<MTLCommandBuffer> commands, const std::string &kernel);

/* Throws std::runtime_error if the GPU has not completed a command buffer that
   was given to NoteKernel(): the GPU ran out of time or memory, or met an
   address without memory.  The message has the kernels' labels and Metal's
   text.  A failure is thrown once, in any thread.  torch does not look for such
   failures before 2.15.
 */
void ThrowIfFailed();

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_STREAM_H_
