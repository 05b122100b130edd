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

#ifndef K2_CSRC_MPS_COUNTERS_H_
#define K2_CSRC_MPS_COUNTERS_H_

#include <cstddef>
#include <cstdint>

// What k2 asks of the GPU and what it waits for, counted on request.  Nothing
// is counted, and no clock is read, while nobody asks.  All of it is zero in
// a k2 that was built without K2_WITH_MPS.

namespace k2 {
namespace mps {

// Since the process began, as far as somebody was counting.
struct Counters {
  // Kernels of k2 that were given to the GPU.
  int64_t dispatches = 0;
  // How often code on the host made sure that the GPU was done.
  int64_t gates = 0;
  // Those gates that had to wait: that took kWaitNanoseconds or longer.
  int64_t waits = 0;
  // How long these waits took together.
  int64_t wait_nanoseconds = 0;
  // What k2 copied between memory of the CPU and of mps, in bytes.
  int64_t bytes_to_mps = 0;
  int64_t bytes_to_cpu = 0;
  // What it copied from one place of mps to another.
  int64_t bytes_within_mps = 0;
};

// torch does not tell whether the GPU has work, so a wait is known by its
// time.  A gate with nothing to wait for takes some tens of nanoseconds, a few
// microseconds where all of it was out of the caches; to hand a command buffer
// to a GPU and hear that it is done takes tens of microseconds at the least.
constexpr int64_t kWaitNanoseconds = 10000;

/* Begins to count, until StopCounting() has been called as many times. */
void StartCounting();
void StopCounting();

Counters GetCounters();

// What follows is for those who do what is counted.

bool IsCounting();
void CountDispatch();
void CountGate(int64_t nanoseconds);
void CountCopyToMps(size_t bytes);
void CountCopyToCpu(size_t bytes);
void CountCopyWithinMps(size_t bytes);

#if !K2_WITH_MPS

inline void StartCounting() {}

inline void StopCounting() {}

inline Counters GetCounters() { return {}; }

// Only code for mps calls these.

inline void CountCopyToMps(size_t) {}

#endif  // !K2_WITH_MPS

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_COUNTERS_H_
