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

#include <string>
#include <vector>

namespace k2 {
namespace mps {

// What both a Metal kernel and k2's code for the host can do on mps.  Where to
// run is the only difference: both work in the same memory.
enum class Operation { kIntersectDense, kCtcLoss, kScores };

// What an operation takes, in nanoseconds.
struct Costs {
  double host;  // the host, for each unit of work
  double step;  // Metal, for each of the steps that follow each other
  double call;  // Metal, for its dispatches and the wait that follows
};

/* Decides who does an operation: the one for which the estimate is shorter.

   The environment variable K2_MPS_FORCE, `host` or `metal`, overrules that; it
   is read each time.  Throws if it has another value.

   @param [in] operation  The operation.
   @param [in] work       How many units of work there are, see Placements().
   @param [in] steps      How many steps follow each other.
   @return   Whether to use the kernels.
 */
bool PreferMetal(Operation operation, double work, double steps);

// An operation, its costs, and its last call in this process.
struct Placement {
  std::string operation;    // the name of k2's function
  std::string work, steps;  // what these are, in the plural
  Costs costs;
  bool is_calibrated;  // by SetCosts()

  int64_t num_calls;                   // those of PreferMetal()
  double last_work, last_steps;        // of the last one; 0 before the first
  bool last_is_metal, last_is_forced;  // by K2_MPS_FORCE
};

// Returns a Placement for each Operation.
std::vector<Placement> Placements();

// Replaces the costs of the operation of that name.  Throws if there is none.
void SetCosts(const std::string &operation, const Costs &costs);

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_PLACEMENT_H_
