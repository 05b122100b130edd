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

#include <string>

#include "k2/csrc/mps/double_scores.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/double_scores.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/placement.h"
#include "k2/csrc/torch_util.h"

namespace k2 {

namespace {

constexpr const char *kDoubleScores = "double_scores";

// Returns the name of a kernel for a semiring.
std::string ForSemiring(const char *kernel, bool log_semiring) {
  return std::string(kernel) + (log_semiring ? "_log" : "_tropical");
}

// The inputs of all kernels.
struct DoubleScoresInputs {
  DoubleScoresParams params;
  torch::Tensor arcs, state_begins, batch_begins, states, leaving_begins,
      incoming_begins, incoming;
};

DoubleScoresInputs GetInputs(BatchedFsas &batched) {
  FsaVec &fsas = batched.fsas;
  Array1<int32_t> state_begins = fsas.RowSplits(1),
                  leaving_begins = fsas.RowSplits(2),
                  batch_begins = batched.state_batches.RowSplits(2);
  // Metal binds no empty buffer.  Kernels that get no incoming arcs do not read
  // their buffers.
  torch::Tensor splits = ToTorch(leaving_begins);
  const bool has_incoming = batched.incoming.defined();
  return {{fsas.Dim0(), batched.state_batches.Dim0(), fsas.TotSize(1),
           fsas.NumElements(), batched.log_semiring},
          ToTorch(fsas.values),
          ToTorch(state_begins),
          ToTorch(batch_begins),
          ToTorch(batched.state_batches.values),
          splits,
          has_incoming ? batched.incoming_begins : splits,
          has_incoming ? batched.incoming : splits};
}

// A dispatch whose threadgroups go through the batches of an FSA.
struct Walk {
  std::string kernel;
  mps::Grid grid;
  int64_t num_waves;
};

// The threads are twice the states that an FSA has in an average batch: in most
// batches each thread has at most one state.
Walk GetWalk(const std::string &kernel, FsaVec &fsas, int32_t num_batches,
             int32_t num_directions) {
  const torch::Tensor arcs = ToTorch(fsas.values);
  const int64_t num_parts = int64_t{fsas.Dim0()} * num_batches;
  const mps::Instance instance = mps::FitInstance(
      kDoubleScores, kernel, arcs,
      (2LL * fsas.TotSize(1) + num_parts - 1) / num_parts, kDsSimdWidth);
  const mps::Grid grid = {static_cast<uint32_t>(num_directions * fsas.Dim0()),
                          instance.threads};
  return {instance.kernel, grid,
          mps::NumWaves(kDoubleScores, instance.kernel, arcs, grid)};
}

// Calls launch() for each part of the batches, with params->first_batch and
// params->last_batch set.
template <typename F>
void LaunchBatches(DoubleScoresParams *params, int64_t num_waves, F launch) {
  mps::LaunchInParts(params->num_arcs, params->num_batches, num_waves,
                     [&](int32_t first, int32_t last) {
                       params->first_batch = first;
                       params->last_batch = last;
                       launch();
                     });
}

// Memory for the GPU to write.
torch::Tensor New(const DoubleScoresInputs &inputs, torch::IntArrayRef sizes,
                  torch::ScalarType dtype = torch::kFloat) {
  return torch::empty(sizes, inputs.arcs.options().dtype(dtype));
}

// Returns the grid of a kernel over arcs, and sets params->num_parts, so that
// an FSA of the average size has a thread for each arc.
mps::Grid GetArcGrid(DoubleScoresParams *params) {
  const int64_t threads = int64_t{params->num_fsas} * kDsArcThreads;
  params->num_parts = (params->num_arcs + threads - 1) / threads;
  return {static_cast<uint32_t>(params->num_fsas * params->num_parts),
          kDsArcThreads};
}

}  // namespace

bool PreferDoubleScoresMps(FsaVec &fsas, int32_t num_batches) {
  return fsas.NumElements() != 0 &&
         mps::PreferMetal(
             mps::Operation::kScores, fsas.NumElements(), num_batches, [&] {
               return GetWalk("double_scores_log", fsas, num_batches, 2)
                   .num_waves;
             });
}

std::pair<DoubleScores, DoubleScores> ComputeDoubleScores(BatchedFsas &fsas,
                                                          bool forward,
                                                          bool backward) {
  K2_CHECK(forward || backward);
  K2_CHECK(!forward || fsas.incoming.defined());
  DoubleScoresInputs inputs = GetInputs(fsas);
  DoubleScoresParams &params = inputs.params;
  params.is_forward = forward;
  const int32_t num_directions = forward + backward;
  // In the log semiring no kernel writes best arcs.
  torch::Tensor states = New(inputs, {num_directions, params.num_states,
                                      params.log_semiring ? 4 : 3}),
                totals = New(inputs, {num_directions, params.num_fsas}),
                best_arcs = New(inputs,
                                {num_directions,
                                 params.log_semiring ? 1 : params.num_states},
                                torch::kInt);
  const Walk walk = GetWalk(ForSemiring("double_scores", fsas.log_semiring),
                            fsas.fsas, params.num_batches, num_directions);
  LaunchBatches(&params, walk.num_waves, [&] {
    mps::Launch(kDoubleScores, walk.kernel, walk.grid,
                {inputs.arcs, inputs.state_begins, inputs.batch_begins,
                 inputs.states, inputs.leaving_begins, inputs.incoming_begins,
                 inputs.incoming, states, totals, best_arcs, params});
  });
  auto scores_of = [&](int32_t direction) {
    return DoubleScores{states[direction], totals[direction],
                        best_arcs[direction], fsas.log_semiring};
  };
  return {forward ? scores_of(0) : DoubleScores{},
          backward ? scores_of(num_directions - 1) : DoubleScores{}};
}

torch::Tensor RoundDoubleScores(const DoubleScores &scores) {
  DoubleScoresParams params = {};
  params.num_states = static_cast<int>(scores.states.size(0));
  torch::Tensor ans =
      torch::empty({params.num_states}, scores.states.options());
  mps::Launch(kDoubleScores, ForSemiring("double_rounded", scores.log_semiring),
              mps::GridOf(params.num_states), {scores.states, ans, params});
  return ans;
}

torch::Tensor DoubleScoresBackprop(BatchedFsas &fsas, bool is_forward,
                                   const DoubleScores &scores,
                                   torch::Tensor grad, bool of_totals) {
  K2_CHECK(is_forward || fsas.incoming.defined());
  K2_CHECK(!of_totals || !fsas.log_semiring);
  DoubleScoresInputs inputs = GetInputs(fsas);
  DoubleScoresParams &params = inputs.params;
  params.is_forward = is_forward;
  params.of_totals = of_totals;
  if (of_totals) {
    params.grad_stride = static_cast<int>(grad.stride(0));
  } else {
    grad = grad.contiguous();
  }
  torch::Tensor shares = New(inputs, {params.num_arcs, 2}),
                state_grad = New(inputs, {params.num_states, 2}),
                ans = New(inputs, {params.num_arcs});
  const mps::Grid arc_grid = GetArcGrid(&params);
  mps::Launch(kDoubleScores, "double_shares", arc_grid,
              {inputs.arcs, inputs.state_begins, inputs.leaving_begins,
               scores.states, scores.best_arcs, shares, params});
  const Walk walk =
      GetWalk("double_backprop", fsas.fsas, params.num_batches, 1);
  LaunchBatches(&params, walk.num_waves, [&] {
    mps::Launch(
        kDoubleScores, walk.kernel, walk.grid,
        {inputs.arcs, inputs.state_begins, inputs.batch_begins, inputs.states,
         inputs.leaving_begins, inputs.incoming_begins, inputs.incoming,
         scores.states, shares, grad, state_grad, ans, params});
  });
  return ans;
}

torch::Tensor DoubleTotalsBackprop(BatchedFsas &fsas,
                                   const DoubleScores &forward,
                                   const DoubleScores &backward,
                                   torch::Tensor grad) {
  DoubleScoresInputs inputs = GetInputs(fsas);
  inputs.params.grad_stride = static_cast<int>(grad.stride(0));
  torch::Tensor ans = New(inputs, {inputs.params.num_arcs});
  const mps::Grid grid = GetArcGrid(&inputs.params);
  mps::Launch(kDoubleScores, "double_totals_backprop", grid,
              {inputs.arcs, inputs.state_begins, inputs.leaving_begins,
               forward.states, backward.states, grad, ans, inputs.params});
  return ans;
}

torch::Tensor DoubleArcPost(BatchedFsas &fsas, const DoubleScores &forward,
                            const DoubleScores &backward) {
  DoubleScoresInputs inputs = GetInputs(fsas);
  torch::Tensor ans = New(inputs, {inputs.params.num_arcs});
  const mps::Grid grid = GetArcGrid(&inputs.params);
  mps::Launch(kDoubleScores, ForSemiring("double_arc_post", fsas.log_semiring),
              grid,
              {inputs.arcs, inputs.state_begins, inputs.leaving_begins,
               forward.states, backward.states, ans, inputs.params});
  return ans;
}

std::pair<torch::Tensor, torch::Tensor> DoubleArcPostBackprop(
    BatchedFsas &fsas, torch::Tensor grad) {
  K2_CHECK(fsas.incoming.defined());
  DoubleScoresInputs inputs = GetInputs(fsas);
  const int64_t num_states = inputs.params.num_states;
  torch::Tensor forward_grad = New(inputs, {num_states}),
                backward_grad = New(inputs, {num_states});
  const mps::Grid grid = GetArcGrid(&inputs.params);
  mps::Launch(kDoubleScores, "double_arc_post_backprop", grid,
              {grad.contiguous(), inputs.state_begins, inputs.leaving_begins,
               inputs.incoming_begins, inputs.incoming, forward_grad,
               backward_grad, inputs.params});
  return {forward_grad, backward_grad};
}

}  // namespace k2
