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

#ifndef K2_CSRC_BLOCKING_H_
#define K2_CSRC_BLOCKING_H_

#include <functional>

namespace k2 {

/* Calls `f`, which waits for a device or for another thread.  k2 calls
   RunBlocking() where it waits for its thread pool or for mps.  Its waits for
   CUDA do not use RunBlocking().

   The other thread may need a lock that the caller holds, such as Python's GIL.
   For example, torch takes the GIL when C++ gets its first reference to a
   Python tensor, or drops its last reference to the tensor.  So the function
   that SetRunBlocking() has set releases the lock while `f` runs.  Meanwhile
   other threads may call k2, even with the same objects.
 */
void RunBlocking(const std::function<void()> &f);

/* Makes RunBlocking(f) call run(f).

   @param [in] run   Must call `f` once, and let exceptions pass.  With
                     nullptr, the initial value, RunBlocking() only calls `f`.
 */
void SetRunBlocking(void (*run)(const std::function<void()> &f));

}  // namespace k2

#endif  // K2_CSRC_BLOCKING_H_
