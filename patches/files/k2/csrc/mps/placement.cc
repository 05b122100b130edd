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

#include "k2/csrc/mps/placement.h"

#include <cstdlib>
#include <mutex>  // NOLINT

#include "torch/all.h"

namespace k2 {
namespace mps {

namespace {

std::mutex g_mutex;

// Returns the operations, in the order of Operation.
//
// These costs are rough, since no Apple device was measured; k2.mps.calibrate
// measures the user's device.  The costs of the host come from one core of an
// x86-64, and for ctc_loss include the lattice and the gradient.  The costs of
// Metal are several times the costs of an NVIDIA H200, plus the published time
// of a dispatch and a wait on Apple's GPUs.
std::vector<Placement> &Table() {
  static std::vector<Placement> table = {
      {"intersect_dense", "arcs and frames", "frames", {15, 4000, 400000}},
      {"ctc_loss", "arcs and frames", "frames", {30, 12000, 400000}},
      {"get_tot_scores", "arcs", "batches of states", {30, 8000, 200000}},
  };
  return table;
}

}  // namespace

bool PreferMetal(Operation operation, double work, double steps) {
  const char *value = std::getenv("K2_MPS_FORCE");
  const std::string force = value == nullptr ? "" : value;
  TORCH_CHECK(force.empty() || force == "host" || force == "metal",
              "The environment variable K2_MPS_FORCE may be `host` or `metal`. "
              "Given: ",
              force);
  std::lock_guard<std::mutex> lock(g_mutex);
  Placement &placement = Table()[static_cast<int32_t>(operation)];
  const Costs &costs = placement.costs;
  const bool is_metal =
      force.empty() ? costs.step * steps + costs.call < costs.host * work
                    : force == "metal";
  ++placement.num_calls;
  placement.last_work = work;
  placement.last_steps = steps;
  placement.last_is_metal = is_metal;
  placement.last_is_forced = !force.empty();
  return is_metal;
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
