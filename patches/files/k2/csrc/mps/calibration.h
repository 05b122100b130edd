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

#ifndef K2_CSRC_MPS_CALIBRATION_H_
#define K2_CSRC_MPS_CALIBRATION_H_

#include <string>
#include <vector>

#include "k2/csrc/mps/placement.h"

namespace k2 {
namespace mps {

// An operation, its costs, and its last call in this process.
struct Placement {
  std::string operation;  // the name of k2's function
  // The names of the units of PreferMetal()'s `work` and `steps`, in the
  // plural.
  std::string work, steps;
  Costs costs;
  bool is_calibrated;  // whether SetCosts() has set the costs

  int64_t num_calls;             // calls of PreferMetal()
  double last_work, last_steps;  // of the last call; 0 before the first
  bool last_is_metal;            // whether Metal did the last call
  bool last_is_forced;           // whether K2_MPS_FORCE decided the last call
};

// Returns a Placement for each Operation.
std::vector<Placement> Placements();

// Replaces the costs of an operation.  Throws if no operation has that name.
void SetCosts(const std::string &operation, const Costs &costs);

// The following functions are for PreferMetal().

// Returns the costs that SetCosts() has set.  If it has set none, returns
// BuiltInCosts().
Costs CurrentCosts(Operation operation);

// Records the arguments and the result of a call of PreferMetal().
void RecordCall(Operation operation, double work, double steps, bool is_metal,
                bool is_forced);

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_CALIBRATION_H_
