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

#include <algorithm>
#include <vector>

#include "k2/csrc/mps/ctc.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/ctc.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/placement.h"
#include "k2/csrc/torch_util.h"

namespace k2 {

namespace {

constexpr const char *kCtc = "ctc";
constexpr const char *kBest = "ctc_best";

// Returns how many lanes share a state.
int32_t LanesOfCtcState(FsaVec &fsas) {
  return mps::LanesOfState(fsas.NumElements(), fsas.TotSize(1), kCtcArcsOfLane);
}

// Returns an instance of ctc_sums or of ctc_best_scores, with enough threads
// for one and a half times the average number of states.  The host does not
// know the largest FSA without a wait.  In a larger FSA each thread has several
// states.
mps::Instance InstanceOf(const char *source, const char *kernel, FsaVec &fsas) {
  const int64_t num_fsas = fsas.Dim0(),
                states = int64_t{fsas.TotSize(1)} * 3 / 2;
  return mps::FitInstance(
      source, kernel, ToTorch(fsas.values),
      (states + num_fsas - 1) / num_fsas * LanesOfCtcState(fsas),
      kCtcSimdWidth);
}

int32_t FloatsOfSum(bool use_double) { return use_double ? 3 : 2; }

// Returns the rows from a checkpoint to the next, 1 to keep all rows.  More
// rows take less memory: 8 rows of best scores, or 16 of sums.  Two things
// limit them.  A block must take little time beside the pass through all rows,
// so it has at most an 8th of the rows.  Threadgroup memory should hold half of
// a block's rows, for most FSAs.
int32_t RowsOfBlock(int64_t states_of_fsa, int32_t num_rows,
                    int32_t floats_of_score, int32_t floats_in_block,
                    int32_t block_floats) {
  const int64_t fit =
      (block_floats / states_of_fsa - 4 * floats_of_score) / floats_in_block;
  const int32_t most = std::min(floats_of_score == 1 ? 8 : 16, num_rows / 8);
  int32_t rows = 1;
  while (2 * rows <= most && rows <= fit) rows *= 2;
  return rows;
}

uint32_t NumBlocks(const CtcParams &params, int32_t rows_of_block) {
  return params.num_fsas *
         ((params.num_frames + rows_of_block - 1) / rows_of_block);
}

// Returns the number of states in the checkpoints of both directions.
int64_t NumCheckpoints(const CtcParams &params, int32_t rows_of_block) {
  return 2 * (params.num_frames / rows_of_block + 1) *
         int64_t{params.num_states};
}

// The arguments that all kernels begin with.
struct CtcInputs : mps::FirstArguments<CtcParams> {
  torch::TensorOptions floats;
};

CtcInputs GetInputs(CtcGraphs &graphs, DenseFsaVec &dense, int32_t num_rows,
                    float penalty, bool use_double, bool all_sums) {
  FsaVec &fsas = graphs.fsas;
  Array1<int32_t> state_begins = fsas.RowSplits(1),
                  leaving_begins = fsas.RowSplits(2),
                  b_begins = dense.shape.RowSplits(1);
  CtcInputs ans;
  const int32_t num_fsas = fsas.Dim0(), num_states = leaving_begins.Dim() - 1,
                num_arcs = fsas.values.Dim(),
                states_of_fsa = num_states / num_fsas + 1;
  K2_CHECK_EQ(num_fsas, dense.shape.Dim0());
  ans.params = {num_fsas,
                num_states,
                num_arcs,
                num_rows,
                num_arcs / 32 + num_fsas,
                dense.scores.ElemStride0(),
                dense.scores.Dim1(),
                LanesOfCtcState(fsas),
                RowsOfBlock(states_of_fsa, num_rows, 1, 1, kCtcBestFloats),
                all_sums
                    ? 1
                    : RowsOfBlock(states_of_fsa, num_rows,
                                  FloatsOfSum(use_double), 2, kCtcSumFloats),
                graphs.penalized.defined(),
                penalty,
                0.0f};
  const torch::Tensor b_scores = ToTorch(dense.scores);
  ans.floats = b_scores.options();
  ans.arguments = {
      ToTorch(fsas.values), ToTorch(state_begins), ToTorch(leaving_begins),
      graphs.index.incoming_begins, graphs.index.incoming, b_scores,
      ToTorch(b_begins),
      // Metal binds no empty buffer.  Without penalties no kernel reads this
      // one.
      graphs.penalized.defined() ? graphs.penalized : graphs.index.fsa_of_arc};
  return ans;
}

// Encodes ctc_best_scores, ctc_best_path and ctc_keep.
torch::Tensor KeptArcs(CtcGraphs &graphs, const CtcInputs &inputs) {
  const CtcParams &params = inputs.params;
  const torch::TensorOptions floats = inputs.floats,
                             ints = floats.dtype(torch::kInt);
  const int32_t rows = params.frames_of_best_block;
  const uint32_t num_fsas = params.num_fsas;
  torch::Tensor best = torch::empty({NumCheckpoints(params, rows)}, floats),
                best_totals = torch::empty({params.num_fsas, 2}, floats),
                scratch = torch::empty(
                    {params.num_states, kCtcScratchFrames + 4}, floats),
                best_arcs =
                    torch::empty({params.num_fsas, params.num_frames}, ints),
                kept =
                    torch::empty({params.num_frames, params.num_words}, ints);
  const mps::Instance scores =
      InstanceOf(kBest, "ctc_best_scores", graphs.fsas);
  mps::Launch(kBest, scores.kernel, {2 * num_fsas, scores.threads},
              inputs.And({best, scratch, best_totals}));
  mps::Launch(kBest, "ctc_best_path", {num_fsas, kCtcThreads},
              inputs.And({best, best_totals, scratch, best_arcs}));
  mps::Launch(kBest, "ctc_keep", {NumBlocks(params, rows), kCtcThreads},
              inputs.And({best, best_totals, best_arcs, scratch, kept}));
  return kept;
}

}  // namespace

bool PreferCtcMps(FsaVec &fsas, int64_t num_rows) {
  const int64_t work = fsas.NumElements() * num_rows;
  int64_t num_waves = 1;
  auto count_waves = [&] {
    const mps::Instance sums = InstanceOf(kCtc, "ctc_sums_double", fsas);
    num_waves =
        mps::NumWaves(kCtc, sums.kernel, ToTorch(fsas.values),
                      {static_cast<uint32_t>(2 * fsas.Dim0()), sums.threads});
    return num_waves;
  };
  // A dispatch goes through all rows.  For more rows than one dispatch may do,
  // use the lattice: LaunchInParts() divides its kernels.
  return work != 0 &&
         mps::PreferMetal(mps::Operation::kCtcLoss, work, num_rows,
                          count_waves) &&
         mps::NumParts(work, num_rows, num_waves) == 1;
}

std::pair<torch::Tensor, CtcSaved> CtcForward(CtcGraphs &graphs,
                                              DenseFsaVec &dense,
                                              int32_t num_rows, float penalty,
                                              bool use_double, bool all_sums,
                                              float output_beam) {
  NVTX_RANGE(K2_FUNC);
  CtcInputs inputs =
      GetInputs(graphs, dense, num_rows, penalty, use_double, all_sums);
  CtcParams &params = inputs.params;
  params.beam = output_beam;
  // KeptArcs() has freed its memory: the sums get the same memory.
  torch::Tensor kept = KeptArcs(graphs, inputs);

  const torch::TensorOptions floats = inputs.floats;
  const int32_t rows = params.frames_of_block;
  torch::Tensor sums = torch::empty({NumCheckpoints(params, rows),
                                     rows == 1 ? 2 : FloatsOfSum(use_double)},
                                    floats),
                scratch = torch::empty(
                    {4 * int64_t{params.num_states}, FloatsOfSum(use_double)},
                    floats),
                totals = torch::empty({params.num_fsas, 2}, floats),
                scores = torch::empty({params.num_fsas}, floats);
  const mps::Instance instance = InstanceOf(
      kCtc, use_double ? "ctc_sums_double" : "ctc_sums_float", graphs.fsas);
  mps::Launch(
      kCtc, instance.kernel,
      {static_cast<uint32_t>(2 * params.num_fsas), instance.threads},
      inputs.And({kept, graphs.index.labels, sums, scratch, totals, scores}));
  return {scores, {kept, sums, totals}};
}

std::pair<torch::Tensor, torch::Tensor> CtcBackward(
    CtcGraphs &graphs, DenseFsaVec &dense, int32_t num_rows, float penalty,
    bool use_double, bool all_sums, const CtcSaved &saved,
    torch::Tensor score_grads, bool need_graphs, bool need_dense) {
  NVTX_RANGE(K2_FUNC);
  const CtcInputs inputs =
      GetInputs(graphs, dense, num_rows, penalty, use_double, all_sums);
  const CtcParams &params = inputs.params;
  const torch::TensorOptions floats = inputs.floats;
  score_grads = score_grads.contiguous();
  auto launch = [&](const char *kernel, mps::Grid grid,
                    const torch::Tensor &index, const torch::Tensor &grad,
                    const std::vector<mps::Argument> &more) {
    std::vector<mps::Argument> arguments = inputs.And(
        {index, saved.kept, saved.sums, saved.totals, score_grads, grad});
    arguments.insert(arguments.end(), more.begin(), more.end());
    mps::Launch(kCtc, kernel, grid, arguments);
  };
  torch::Tensor a_grad, b_grad;
  if (need_graphs) {
    a_grad = torch::empty({params.num_arcs}, floats);
    launch("ctc_arc_gradient", mps::GridOf(params.num_arcs, kCtcThreads),
           graphs.index.fsa_of_arc, a_grad, {});
  }
  if (need_dense) {
    b_grad = torch::empty({dense.scores.Dim0(), params.num_columns}, floats);
    const int32_t rows = params.frames_of_block;
    const mps::Grid grid = {NumBlocks(params, rows), kCtcThreads};
    if (rows == 1) {
      launch("ctc_gradient", grid, graphs.index.by_label, b_grad, {});
    } else {
      launch(
          use_double ? "ctc_block_gradient_double" : "ctc_block_gradient_float",
          grid, graphs.index.by_label, b_grad,
          {torch::empty({params.num_states,
                         2 * kCtcScratchFrames + 4 * FloatsOfSum(use_double)},
                        floats)});
    }
  }
  return {a_grad, b_grad};
}

}  // namespace k2
