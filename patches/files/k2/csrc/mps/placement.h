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

#ifndef K2_CSRC_MPS_PLACEMENT_H_
#define K2_CSRC_MPS_PLACEMENT_H_

namespace k2 {
namespace mps {

/* Tells who is to do an operation on mps that both a Metal kernel and k2's
   code for the host can do.  Where to run is the only difference: both work
   in the same memory.

   The one with the shorter time is it.  The environment variable
   K2_MPS_FORCE, `host` or `metal`, overrules that; it is read each time.
   Throws if it has another value.

   @param [in] host_time   What the host needs, an estimate in nanoseconds.
   @param [in] metal_time  What the kernel needs, with the wait that follows.
   @return   Whether to use the kernel.
 */
bool PreferMetal(double host_time, double metal_time);

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_PLACEMENT_H_
