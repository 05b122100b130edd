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
#include <string>

#include "torch/all.h"

namespace k2 {
namespace mps {

// The costs are estimates, because no Apple device was measured.
//
// host   The time that k2's code for the CPU takes on one core of an x86-64.
//        For ctc_loss, this time includes the lattice and the gradient.
// step   The estimate of k2-mps's model of an M1, for 8 utterances of 200
//        frames.  The model counts the instructions, barriers and bytes of the
//        kernels, divides them by the M1's speed, and gives a range.  This
//        number is the slower end of the range, rounded to half a microsecond.
//        A step of intersect_dense_pruned is a round, see pruned_problem.h.
// call   In the same model, 20 us for each kernel of the operation, and 200 us
//        for each wait.  Others measured 150 to 360 us
//        (github.com/JuliaGPU/Metal.jl/pull/783) and 180 us
//        (github.com/ml-explore/mlx/issues/4438) for a small kernel and the
//        wait for it.  intersect_dense and intersect_dense_pruned wait for the
//        lattice's size.  The caller of each operation waits for the result.
Costs BuiltInCosts(Operation operation) {
  Costs costs = {};
  switch (operation) {
    case Operation::kIntersectDense:
      costs.host = 15;
      costs.step = 3000;
      costs.call = 500000;
      break;
    case Operation::kCtcLoss:
      costs.host = 30;
      costs.step = 14500;
      costs.call = 340000;
      break;
    case Operation::kScores:
      costs.host = 30;
      costs.step = 2500;
      costs.call = 300000;
      break;
    case Operation::kIntersectDensePruned:
      costs.host = 24;
      costs.step = 6000;
      costs.call = 500000;
      break;
  }
  return costs;
}

bool PreferMetal(Operation operation, double work, double steps,
                 const std::function<int64_t()> &num_waves) {
  const char *value = std::getenv("K2_MPS_FORCE");
  const std::string force = value == nullptr ? "" : value;
  TORCH_CHECK(force.empty() || force == "host" || force == "metal",
              "The environment variable K2_MPS_FORCE may be `host` or `metal`. "
              "Given: ",
              force);
  const Costs costs = BuiltInCosts(operation);
  auto is_metal = [&] {
    return force.empty() ? costs.step * steps + costs.call < costs.host * work
                         : force == "metal";
  };
  // Counting the waves may compile the kernel.  So count them only if Metal is
  // faster with one wave, and then compare again.
  if (is_metal()) steps *= num_waves();
  return is_metal();
}

}  // namespace mps
}  // namespace k2
