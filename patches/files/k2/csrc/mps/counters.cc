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

#include "k2/csrc/mps/counters.h"

#include <atomic>

namespace k2 {
namespace mps {

namespace {

std::atomic<int32_t> num_counting{0};

std::atomic<int64_t> dispatches{0};
std::atomic<int64_t> precompiled{0};
std::atomic<int64_t> operators{0};
std::atomic<int64_t> torch_waits{0};
std::atomic<int64_t> gates{0};
std::atomic<int64_t> drains{0};
std::atomic<int64_t> waits{0};
std::atomic<int64_t> wait_nanoseconds{0};
std::atomic<int64_t> bytes_to_mps{0};
std::atomic<int64_t> bytes_to_cpu{0};
std::atomic<int64_t> bytes_within_mps{0};

// Whether the GPU was given work that no counted wait has covered.
std::atomic<bool> has_queued_work{false};

// The relaxed order suffices, because the counters guard no other memory.
constexpr auto kRelaxed = std::memory_order_relaxed;

void Add(std::atomic<int64_t> *counter, int64_t n) {
  if (IsCounting()) counter->fetch_add(n, kRelaxed);
}

}  // namespace

void StartCounting() {
  if (num_counting.fetch_add(1, kRelaxed) == 0) TakeQueuedWork();
  StartWatchingOperators();
}

void StopCounting() {
  StopWatchingOperators();
  num_counting.fetch_sub(1, kRelaxed);
}

Counters GetCounters() {
  Counters ans;
  ans.dispatches = dispatches.load(kRelaxed);
  ans.precompiled = precompiled.load(kRelaxed);
  ans.operators = operators.load(kRelaxed);
  ans.torch_waits = torch_waits.load(kRelaxed);
  ans.gates = gates.load(kRelaxed);
  ans.drains = drains.load(kRelaxed);
  ans.waits = waits.load(kRelaxed);
  ans.wait_nanoseconds = wait_nanoseconds.load(kRelaxed);
  ans.bytes_to_mps = bytes_to_mps.load(kRelaxed);
  ans.bytes_to_cpu = bytes_to_cpu.load(kRelaxed);
  ans.bytes_within_mps = bytes_within_mps.load(kRelaxed);
  return ans;
}

bool IsCounting() { return num_counting.load(kRelaxed) > 0; }

void NoteQueuedWork() { has_queued_work.store(true, kRelaxed); }

bool TakeQueuedWork() { return has_queued_work.exchange(false, kRelaxed); }

void CountDispatch(bool is_precompiled) {
  Add(&dispatches, 1);
  if (is_precompiled) Add(&precompiled, 1);
  NoteQueuedWork();
}

void CountOperator() {
  Add(&operators, 1);
  NoteQueuedWork();
}

void CountTorchWait() {
  Add(&torch_waits, 1);
  TakeQueuedWork();
}

void CountGate(int64_t nanoseconds, bool is_drain) {
  Add(&gates, 1);
  if (is_drain) Add(&drains, 1);
  if (nanoseconds < kWaitNanoseconds) return;
  Add(&waits, 1);
  Add(&wait_nanoseconds, nanoseconds);
}

void CountCopyToMps(size_t bytes) { Add(&bytes_to_mps, bytes); }

void CountCopyToCpu(size_t bytes) { Add(&bytes_to_cpu, bytes); }

void CountCopyWithinMps(size_t bytes) { Add(&bytes_within_mps, bytes); }

}  // namespace mps
}  // namespace k2
