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

#ifndef K2_CSRC_INTERRUPT_H_
#define K2_CSRC_INTERRUPT_H_

#include <cstdint>

namespace k2 {

/* Sets the function that CheckInterrupt() calls.  With nullptr, it calls none.
   If the function throws, the exception ends the loop that has called
   CheckInterrupt().  Python's binding sets a function that raises
   KeyboardInterrupt after Ctrl-C. */
void SetInterruptFunction(void (*function)());

/* Calls the function that is set, at most ten times a second. */
void CheckInterrupt();

// For a loop of the host that may run for seconds.
class LongLoop {
 public:
  // Counts steps, and calls CheckInterrupt() once in about 2^16 of them.
  void Step(int64_t num_steps = 1) {
    steps_ += num_steps;
    if (steps_ < (1 << 16)) return;
    steps_ = 0;
    CheckInterrupt();
  }

 private:
  int64_t steps_ = 0;
};

}  // namespace k2

#endif  // K2_CSRC_INTERRUPT_H_
