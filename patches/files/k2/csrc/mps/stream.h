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

#include "torch/all.h"
#include "torch/mps.h"

namespace k2 {
namespace mps {

/* Throws std::runtime_error in a child of fork() if the parent has used mps. */
void RefuseFork();

/* Waits until the GPU is done with all work so far, of all threads and of all
   of torch's streams.  May be called from any thread, but not inside of
   torch's dispatch queue.

   Throws what torch::mps::synchronize() throws.
 */
void Synchronize();

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_STREAM_H_
