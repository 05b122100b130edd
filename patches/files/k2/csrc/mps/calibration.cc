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

#include "k2/csrc/mps/calibration.h"

#include <mutex>  // NOLINT

#include "torch/all.h"

namespace k2 {
namespace mps {

namespace {

std::mutex g_mutex;

// Returns the placements, in the order of the enum Operation.
std::vector<Placement> &Table() {
  static std::vector<Placement> table = {
      {"intersect_dense", "arcs and frames", "frames and waves",
       BuiltInCosts(Operation::kIntersectDense)},
      {"ctc_loss", "arcs and frames", "frames and waves",
       BuiltInCosts(Operation::kCtcLoss)},
      {"get_tot_scores", "arcs", "batches of states and waves",
       BuiltInCosts(Operation::kScores)},
      {"intersect_dense_pruned", "active arcs", "rounds of waves",
       BuiltInCosts(Operation::kIntersectDensePruned)},
  };
  return table;
}

}  // namespace

Costs CurrentCosts(Operation operation) {
  std::lock_guard<std::mutex> lock(g_mutex);
  return Table()[static_cast<int32_t>(operation)].costs;
}

void RecordCall(Operation operation, double work, double steps, bool is_metal,
                bool is_forced) {
  std::lock_guard<std::mutex> lock(g_mutex);
  Placement &placement = Table()[static_cast<int32_t>(operation)];
  ++placement.num_calls;
  placement.last_work = work;
  placement.last_steps = steps;
  placement.last_is_metal = is_metal;
  placement.last_is_forced = is_forced;
}

std::vector<Placement> Placements() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return Table();
}

void SetCosts(const std::string &operation, const Costs &costs) {
  std::lock_guard<std::mutex> lock(g_mutex);
  for (Placement &placement : Table()) {
    if (placement.operation != operation) continue;
    placement.costs = costs;
    placement.is_calibrated = true;
    return;
  }
  TORCH_CHECK(false, "No operation with costs is called ", operation);
}

}  // namespace mps
}  // namespace k2
