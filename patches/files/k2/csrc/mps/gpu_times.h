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

#ifndef K2_CSRC_MPS_GPU_TIMES_H_
#define K2_CSRC_MPS_GPU_TIMES_H_

#ifdef __OBJC__
#import <Metal/Metal.h>
#endif

#include <vector>

// From StartGpuTimes() to StopGpuTimes(), collects the times at which the GPU
// itself began and ended each command buffer.  Metal calls these times
// GPUStartTime and GPUEndTime.  Otherwise k2 does not ask Metal for times.

namespace k2 {
namespace mps {

// Seconds of one clock.  `end` is greater than `begin`.
struct GpuTime {
  double begin;
  double end;
};

#if K2_WITH_MPS

/* Begins to collect times, and forgets those of earlier calls. */
void StartGpuTimes();

/* Adds the command buffer that is open in torch's stream, with all work that
   torch encodes into it.  Command buffers with kernels of k2 are added without
   a call of this function.  Must not be called in torch's dispatch queue. */
void NoteOpenCommandBuffer();

/* Ends the collection.

   Returns one GpuTime for each command buffer that has completed by now.  So
   call Synchronize() before this function.  A command buffer for which Metal
   reports no time is left out.
 */
std::vector<GpuTime> StopGpuTimes();

#ifdef __OBJC__
/* If times are collected, adds a command buffer, which must not be committed
   yet. */
void NoteGpuTime(id<MTLCommandBuffer> commands);
#endif

#endif  // K2_WITH_MPS

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_GPU_TIMES_H_
