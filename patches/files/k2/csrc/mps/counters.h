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

// Counts dispatches, operators, gates, drains, waits and copies from
// StartCounting() to StopCounting().  At other times k2 counts nothing and does
// not read the clock.  In a build without K2_WITH_MPS all counts are 0.

namespace k2 {
namespace mps {

// What all threads of the process did while counting was on.
struct Counters {
  // Kernels of k2 that were dispatched.
  int64_t dispatches = 0;
  // How many of the dispatched kernels were compiled when k2 was built.
  int64_t precompiled = 0;
  // Operators of torch that gave the GPU work; see OnEnd() in operators.cc.
  int64_t operators = 0;
  // How many of the counted operators make the host wait.
  int64_t torch_waits = 0;
  // How often the host checked that the GPU was done.
  int64_t gates = 0;
  // Gates that TakeQueuedWork() found to have work to wait for.
  int64_t drains = 0;
  // Gates that took kWaitNanoseconds or longer.
  int64_t waits = 0;
  // The total time of the gates that count as waits.
  int64_t wait_nanoseconds = 0;
  // Bytes that k2 copied between memory of the CPU and of mps.
  int64_t bytes_to_mps = 0;
  int64_t bytes_to_cpu = 0;
  // Bytes that k2 copied within memory of mps.
  int64_t bytes_within_mps = 0;
};

// A gate that takes this long or longer counts as a wait, because torch does
// not tell whether the GPU has pending work.  Without pending work, a gate
// takes about 0.3 microseconds on an x86-64, or a few with cold caches.  A
// round trip of a command buffer to the GPU takes at least tens of
// microseconds.
constexpr int64_t kWaitNanoseconds = 10000;

/* Turns counting on.  Calls nest: each call needs a StopCounting(). */
void StartCounting();
void StopCounting();

Counters GetCounters();

/* Between calls of these two functions, torch calls CountOperator() for each
   operator on mps.  Calls nest. */
void StartWatchingOperators();
void StopWatchingOperators();

// When code dispatches, waits or copies, it calls one of these functions for
// each event.

bool IsCounting();

/* Notes that the GPU has work which no wait of the host has covered yet.
   Counted dispatches and operators note this themselves. */
void NoteQueuedWork();

/* Called when a gate begins.  Returns whether the GPU was given work since the
   latest of three events: the previous gate, the last counted wait of torch,
   and the beginning of counting. */
bool TakeQueuedWork();

void CountDispatch(bool is_precompiled);
void CountOperator();
void CountTorchWait();
void CountGate(int64_t nanoseconds, bool is_drain);
void CountCopyToMps(size_t bytes);
void CountCopyToCpu(size_t bytes);
void CountCopyWithinMps(size_t bytes);

#if !K2_WITH_MPS

inline void StartCounting() {}

inline void StopCounting() {}

inline Counters GetCounters() { return {}; }

// This function is never called, because k2 without mps copies nothing to mps.

inline void CountCopyToMps(size_t) {}

#endif  // !K2_WITH_MPS

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_COUNTERS_H_
