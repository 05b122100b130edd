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

#include "k2/csrc/mps/ctc.h"

#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/ctc.h"
#include "k2/csrc/mps/kernels/intersect_dense.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/placement.h"
#include "k2/csrc/torch_util.h"

namespace k2 {

namespace {

constexpr const char *kSource = "ctc";

// Lanes for each state, so that most arcs are in registers.
int32_t GetWidth(int64_t num_arcs, int64_t num_states) {
  int32_t width = 1;
  while (width < kCtcSimdWidth &&
         num_states * kCtcArcsOfLane * width < num_arcs)
    width *= 2;
  return width;
}

// What all kernels read.
struct Inputs {
  CtcParams params;
  torch::Tensor arcs, state_begins, leaving_begins, b_scores, b_begins,
      penalized;
};

Inputs GetInputs(CtcGraphs &graphs, DenseFsaVec &dense, int32_t num_rows,
                 float penalty) {
  FsaVec &fsas = graphs.fsas;
  Array1<int32_t> state_begins = fsas.RowSplits(1),
                  leaving_begins = fsas.RowSplits(2),
                  b_begins = dense.shape.RowSplits(1);
  Inputs ans;
  const int32_t num_fsas = fsas.Dim0(), num_states = leaving_begins.Dim() - 1,
                num_arcs = fsas.values.Dim();
  K2_CHECK_EQ(num_fsas, dense.shape.Dim0());
  ans.params = {num_fsas,
                num_states,
                num_arcs,
                num_rows,
                num_arcs / 32 + num_fsas,
                dense.scores.ElemStride0(),
                dense.scores.Dim1(),
                GetWidth(num_arcs, num_states),
                graphs.penalized.defined(),
                penalty,
                0.0f};
  ans.arcs = ToTorch(fsas.values);
  ans.state_begins = ToTorch(state_begins);
  ans.leaving_begins = ToTorch(leaving_begins);
  ans.b_scores = ToTorch(dense.scores);
  ans.b_begins = ToTorch(b_begins);
  // Metal binds no buffer of nothing; without penalties it is not read.
  ans.penalized =
      graphs.penalized.defined() ? graphs.penalized : graphs.is_bad;
  return ans;
}

// Threads of ctc_sums and of intersect_dense.  The largest FSA is unknown to
// the host, which would have to wait for it: most are not much larger than the
// average, and threads go through the states of larger ones.
uint32_t ThreadsOf(const char *source, const char *kernel,
                   const Inputs &inputs) {
  const int64_t num_fsas = inputs.params.num_fsas,
                states = int64_t{inputs.params.num_states} * 3 / 2;
  return mps::FitThreads(source, kernel, inputs.arcs,
                         (states + num_fsas - 1) / num_fsas *
                             inputs.params.width,
                         kCtcSimdWidth);
}

// Encodes intersect_dense, which computes the best paths to and from each
// state, ctc_best_path and ctc_keep.
torch::Tensor KeptArcs(CtcGraphs &graphs, const Inputs &inputs) {
  const CtcParams &params = inputs.params;
  const torch::TensorOptions floats = inputs.b_scores.options(),
                             ints = inputs.state_begins.options();
  const int64_t of_step = 2 * int64_t{params.num_states};
  torch::Tensor
      best = torch::empty({params.num_rows + 1, of_step}, floats),
      step_begins = torch::arange(0, (params.num_rows + 1) * of_step, of_step,
                                  ints.dtype(torch::kLong)),
      a_to_b_map = torch::arange(params.num_fsas, ints);
  const char *source = "intersect_dense";
  mps::Launch(
      source, source,
      {static_cast<uint32_t>(2 * params.num_fsas),
       ThreadsOf(source, source, inputs)},
      {inputs.arcs, inputs.state_begins, inputs.leaving_begins,
       graphs.entering_begins, graphs.entering, inputs.b_scores,
       inputs.b_begins, a_to_b_map, step_begins, best,
       IntersectDenseParams{
           params.stride, params.num_columns,
           static_cast<int>((inputs.b_scores.size(0) - 1) * params.stride +
                            params.num_columns),
           params.width}});
  torch::Tensor
      best_arcs = torch::empty({params.num_fsas, params.num_rows}, ints),
      kept = torch::empty({params.num_rows, params.num_words}, ints);
  mps::Launch(kSource, "ctc_best_path",
              {static_cast<uint32_t>(params.num_fsas), kCtcSimdWidth},
              {inputs.arcs, inputs.state_begins, inputs.leaving_begins,
               inputs.b_scores, inputs.b_begins, best, best_arcs, params});
  mps::Launch(kSource, "ctc_keep",
              {static_cast<uint32_t>(params.num_fsas * params.num_rows),
               kCtcThreads},
              {inputs.arcs, inputs.state_begins, inputs.leaving_begins,
               inputs.b_scores, inputs.b_begins, best, best_arcs, kept,
               params});
  return kept;
}

}  // namespace

bool PreferCtcMps(int64_t num_arcs, int64_t num_rows) {
  return num_arcs != 0 &&
         mps::PreferMetal(mps::Operation::kCtcLoss,
                          static_cast<double>(num_arcs) * num_rows, num_rows);
}

std::vector<torch::Tensor> CtcForward(CtcGraphs &graphs, DenseFsaVec &dense,
                                      int32_t num_rows, float output_beam,
                                      float penalty, bool use_double) {
  NVTX_RANGE(K2_FUNC);
  Inputs inputs = GetInputs(graphs, dense, num_rows, penalty);
  CtcParams &params = inputs.params;
  params.beam = output_beam;
  // Freed after this, its memory is that of the sums.
  torch::Tensor kept = KeptArcs(graphs, inputs);

  const torch::TensorOptions floats = inputs.b_scores.options();
  const int64_t num_states = params.num_states;
  // Sums are two floats, in double precision four.
  torch::Tensor sums = torch::empty(
                    {2 * (num_rows + 1) * num_states, 2}, floats),
                scratch = torch::empty({4 * num_states, use_double ? 4 : 2},
                                       floats),
                totals = torch::empty({params.num_fsas, 2}, floats),
                scores = torch::empty({params.num_fsas}, floats);
  const char *kernel = use_double ? "ctc_sums_double" : "ctc_sums_float";
  mps::Launch(kSource, kernel,
              {static_cast<uint32_t>(2 * params.num_fsas),
               ThreadsOf(kSource, kernel, inputs)},
              {inputs.arcs, inputs.state_begins, inputs.leaving_begins,
               graphs.entering_begins, graphs.entering, inputs.b_scores,
               inputs.b_begins, kept, inputs.penalized, graphs.is_bad, sums,
               scratch, totals, scores, params});
  return {scores, kept, sums, totals};
}

std::vector<torch::Tensor> CtcBackward(
    CtcGraphs &graphs, DenseFsaVec &dense, int32_t num_rows, float penalty,
    const std::vector<torch::Tensor> &saved, torch::Tensor score_grads,
    bool need_graphs, bool need_dense) {
  NVTX_RANGE(K2_FUNC);
  const Inputs inputs = GetInputs(graphs, dense, num_rows, penalty);
  const CtcParams &params = inputs.params;
  const torch::TensorOptions floats = inputs.b_scores.options();
  score_grads = score_grads.contiguous();
  auto launch = [&](const char *kernel, mps::Grid grid,
                    const torch::Tensor &index, const torch::Tensor &grad) {
    mps::Launch(kSource, kernel, grid,
                {inputs.arcs, inputs.state_begins, inputs.leaving_begins,
                 index, inputs.b_scores, inputs.b_begins, saved[0],
                 inputs.penalized, saved[1], saved[2], score_grads, grad,
                 params});
  };
  torch::Tensor a_grad, b_grad;
  if (need_graphs) {
    a_grad = torch::empty({params.num_arcs}, floats);
    launch("ctc_arc_gradient", mps::GridOf(params.num_arcs), graphs.fsa_of_arc,
           a_grad);
  }
  if (need_dense) {
    b_grad =
        torch::empty({inputs.b_scores.size(0), params.num_columns}, floats);
    launch("ctc_gradient",
           {static_cast<uint32_t>(params.num_fsas * num_rows), kCtcThreads},
           graphs.by_label, b_grad);
  }
  return {a_grad, b_grad};
}

}  // namespace k2
