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
#include "k2/csrc/mps/kernels/simd_width.h"
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

// The arguments that most kernels read.
struct DoubleScoresInputs {
  DoubleScoresParams params;
  torch::Tensor arcs, state_begins, batch_begins, states, leaving_begins,
      incoming_begins, incoming;

  // Returns the arguments of all kernels over arcs, followed by `more`.
  mps::Arguments OverArcs(const mps::Arguments &more) const {
    return mps::Join(
        {mps::In(kDsArcs, arcs), mps::In(kDsStateBegins, state_begins),
         mps::In(kDsLeavingBegins, leaving_begins), mps::In(kDsParams, params)},
        more);
  }

  // Returns the arguments of all kernels over batches, followed by `more`.
  mps::Arguments OverBatches(const mps::Arguments &more) const {
    return mps::Join(OverArcs({mps::In(kDsBatchBegins, batch_begins),
                               mps::In(kDsStates, states),
                               mps::In(kDsIncomingBegins, incoming_begins),
                               mps::In(kDsIncoming, incoming)}),
                     more);
  }
};

DoubleScoresInputs GetInputs(BatchedFsas &batched) {
  FsaVec &fsas = batched.fsas;
  Array1<int32_t> state_begins = fsas.RowSplits(1),
                  leaving_begins = fsas.RowSplits(2),
                  batch_begins = batched.state_batches.RowSplits(2);
  // Metal binds no empty buffer.  If there are no incoming arcs, `splits` takes
  // the place of `incoming_begins` and `incoming`, and the kernels do not read
  // `splits`.
  torch::Tensor splits = ToTorch(leaving_begins);
  const bool has_incoming = batched.incoming.defined();
  if (has_incoming) {
    K2_CHECK_EQ(batched.incoming_begins.numel(), fsas.TotSize(1) + 1);
    K2_CHECK_EQ(batched.incoming.numel(), fsas.NumElements());
  }
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

// A dispatch in which each threadgroup goes through the batches of one FSA.
struct Walk {
  std::string kernel;
  mps::Grid grid;
  int64_t num_waves;
};

// Returns the dispatch of a kernel for `num_directions` directions.  A
// threadgroup has twice as many threads as an FSA has states in an average
// batch.  So in most batches, a thread has at most one state.
Walk GetWalk(const std::string &kernel, FsaVec &fsas, int32_t num_batches,
             int32_t num_directions) {
  const torch::Tensor arcs = ToTorch(fsas.values);
  const int64_t num_parts = int64_t{fsas.Dim0()} * num_batches;
  const mps::Instance instance = mps::FitInstance(
      kDoubleScores, kernel, arcs,
      (2LL * fsas.TotSize(1) + num_parts - 1) / num_parts, kSimdWidth);
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

// Returns uninitialized memory for the GPU to write.
torch::Tensor New(const DoubleScoresInputs &inputs, torch::IntArrayRef sizes,
                  torch::ScalarType dtype = torch::kFloat) {
  return torch::empty(sizes, inputs.arcs.options().dtype(dtype));
}

// Returns the grid of a kernel over arcs, and sets params->num_parts.  With
// this grid, an FSA of the average size has a thread for each arc.
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
                inputs.OverBatches({mps::Out(kDsScores, states),
                                    mps::Out(kDsTotals, totals),
                                    mps::Out(kDsBestArcs, best_arcs)}));
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
              mps::GridOf(params.num_states),
              {mps::In(kDsScores, scores.states), mps::Out(kDsRounded, ans),
               mps::In(kDsParams, params)});
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
              inputs.OverArcs({mps::In(kDsScores, scores.states),
                               mps::In(kDsBestArcs, scores.best_arcs),
                               mps::Out(kDsShares, shares)}));
  const Walk walk =
      GetWalk("double_backprop", fsas.fsas, params.num_batches, 1);
  LaunchBatches(&params, walk.num_waves, [&] {
    mps::Launch(
        kDoubleScores, walk.kernel, walk.grid,
        inputs.OverBatches({mps::In(kDsScores, scores.states),
                            mps::In(kDsShares, shares), mps::In(kDsGrad, grad),
                            mps::Out(kDsStateGrad, state_grad),
                            mps::Out(kDsArcGrad, ans)}));
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
  mps::Launch(
      kDoubleScores, "double_totals_backprop", grid,
      inputs.OverArcs({mps::In(kDsForwardScores, forward.states),
                       mps::In(kDsBackwardScores, backward.states),
                       mps::In(kDsGrad, grad), mps::Out(kDsArcGrad, ans)}));
  return ans;
}

torch::Tensor DoubleArcPost(BatchedFsas &fsas, const DoubleScores &forward,
                            const DoubleScores &backward) {
  DoubleScoresInputs inputs = GetInputs(fsas);
  torch::Tensor ans = New(inputs, {inputs.params.num_arcs});
  const mps::Grid grid = GetArcGrid(&inputs.params);
  mps::Launch(kDoubleScores, ForSemiring("double_arc_post", fsas.log_semiring),
              grid,
              inputs.OverArcs({mps::In(kDsForwardScores, forward.states),
                               mps::In(kDsBackwardScores, backward.states),
                               mps::Out(kDsArcPost, ans)}));
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
              {mps::In(kDsArcGrad, grad.contiguous()),
               mps::In(kDsStateBegins, inputs.state_begins),
               mps::In(kDsLeavingBegins, inputs.leaving_begins),
               mps::In(kDsIncomingBegins, inputs.incoming_begins),
               mps::In(kDsIncoming, inputs.incoming),
               mps::Out(kDsForwardGrad, forward_grad),
               mps::Out(kDsBackwardGrad, backward_grad),
               mps::In(kDsParams, inputs.params)});
  return {forward_grad, backward_grad};
}

}  // namespace k2
