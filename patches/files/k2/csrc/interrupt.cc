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

#include "k2/csrc/interrupt.h"

#include <atomic>
#include <chrono>  // NOLINT

namespace k2 {

static std::atomic<void (*)()> interrupt_function{nullptr};

void SetInterruptFunction(void (*function)()) { interrupt_function = function; }

void CheckInterrupt() {
  // Python's function takes the GIL, and may have to wait for the GIL.  So this
  // function calls it at most ten times a second.
  using Clock = std::chrono::steady_clock;
  static thread_local Clock::time_point last;
  void (*function)() = interrupt_function;
  if (function == nullptr ||
      Clock::now() - last < std::chrono::milliseconds(100))
    return;
  last = Clock::now();
  function();
}

}  // namespace k2
