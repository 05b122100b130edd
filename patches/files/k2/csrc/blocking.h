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

/* Calls `f`, which waits for a device or for another thread.  All waits of k2
   that may be long happen in here.

   The thread waited for may need a lock that the caller holds, such as the
   GIL of Python: torch takes it wherever it adds the first reference of C++ to
   a tensor of Python's, or drops the last one.  So the lock is given up
   meanwhile, in the way SetRunBlocking() was told.  Other threads may then
   call k2, with the same objects, too.
 */
void RunBlocking(const std::function<void()> &f);

/* Makes RunBlocking() call `run` with its argument.

   @param [in] run   Must call its argument once, and pass on what that throws.
                     nullptr: no lock is to be given up, as in the beginning.
 */
void SetRunBlocking(void (*run)(const std::function<void()> &f));

}  // namespace k2

#endif  // K2_CSRC_BLOCKING_H_
