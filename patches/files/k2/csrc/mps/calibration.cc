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

#include <map>
#include <mutex>  // NOLINT

#include "torch/all.h"

namespace k2 {
namespace mps {

namespace {

std::mutex g_mutex;

// Returns the placement of an operation before its first call.
Placement NewPlacement(Operation operation) {
  Placement placement = {};
  placement.costs = BuiltInCosts(operation);
  switch (operation) {
    case Operation::kIntersectDense:
      placement.operation = "intersect_dense";
      placement.work = "arcs and frames";
      placement.steps = "frames and waves";
      break;
    case Operation::kCtcLoss:
      placement.operation = "ctc_loss";
      placement.work = "arcs and frames";
      placement.steps = "frames and waves";
      break;
    case Operation::kScores:
      placement.operation = "get_tot_scores";
      placement.work = "arcs";
      placement.steps = "batches of states and waves";
      break;
    case Operation::kIntersectDensePruned:
      placement.operation = "intersect_dense_pruned";
      placement.work = "active arcs";
      placement.steps = "rounds of waves";
      break;
  }
  return placement;
}

// Returns the placement of each operation.
std::map<Operation, Placement> &Table() {
  static std::map<Operation, Placement> table;
  if (table.empty()) {
    for (Operation operation :
         {Operation::kIntersectDense, Operation::kCtcLoss, Operation::kScores,
          Operation::kIntersectDensePruned})
      table[operation] = NewPlacement(operation);
  }
  return table;
}

}  // namespace

Costs CurrentCosts(Operation operation) {
  std::lock_guard<std::mutex> lock(g_mutex);
  return Table().at(operation).costs;
}

void RecordCall(Operation operation, double work, double steps, bool is_metal,
                bool is_forced) {
  std::lock_guard<std::mutex> lock(g_mutex);
  Placement &placement = Table().at(operation);
  ++placement.num_calls;
  placement.last_work = work;
  placement.last_steps = steps;
  placement.last_is_metal = is_metal;
  placement.last_is_forced = is_forced;
}

std::vector<Placement> Placements() {
  std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<Placement> ans;
  for (const auto &entry : Table()) ans.push_back(entry.second);
  return ans;
}

void SetCosts(const std::string &operation, const Costs &costs) {
  std::lock_guard<std::mutex> lock(g_mutex);
  for (auto &entry : Table()) {
    Placement &placement = entry.second;
    if (placement.operation != operation) continue;
    placement.costs = costs;
    placement.is_calibrated = true;
    return;
  }
  TORCH_CHECK(false, "No operation with costs is called ", operation);
}

}  // namespace mps
}  // namespace k2
