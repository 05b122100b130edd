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

#include <cstdint>
#include <functional>

namespace k2 {
namespace mps {

// Operations on mps that k2 can do with Metal kernels or with k2's code for the
// host.  The kernels and this code work in the same memory.
enum class Operation {
  kIntersectDense,
  kCtcLoss,
  kScores,
  kIntersectDensePruned
};

// The estimated time of an operation, in nanoseconds.
struct Costs {
  double host;  // on the host, for each unit of work
  double step;  // in Metal, for each sequential step of each wave
  double call;  // in Metal, for the dispatches and the wait for them
};

// Returns the costs that k2 was built with.
Costs BuiltInCosts(Operation operation);

/* Estimates the time of an operation on the host and in Metal, and returns
   whether Metal is faster.

   The environment variable K2_MPS_FORCE, `host` or `metal`, overrides the
   estimate.  Each call reads the variable.  Throws if the variable has any
   other value than these two and "".

   @param [in] operation  The operation.
   @param [in] work       Units of work.  For kScores, these are arcs.  For
                          kIntersectDensePruned, they are the active arcs of all
                          frames.  For whole sequences, this number is divided
                          by the number of threads that the host would use.
                          For the chunks of streams, it is not divided.  For the
                          other operations, they are arcs times frames.
   @param [in] steps      Sequential steps.  For kScores, these are batches of
                          states.  For kIntersectDensePruned, they are the
                          rounds of a threadgroup in all frames, see
                          pruned_problem.h.  For the other operations, they are
                          frames.
   @param [in] num_waves  A function that returns NumWaves() of the operation's
                          longest kernel, see grid.h.  The function compiles the
                          kernel, so PreferMetal() does not call it if Metal is
                          slower even with one wave.
   @return   Whether to use the kernels.
 */
bool PreferMetal(Operation operation, double work, double steps,
                 const std::function<int64_t()> &num_waves);

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_PLACEMENT_H_
