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

#include "k2/csrc/mps/ctc.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/ctc.h"
#include "k2/csrc/mps/kernels/simd_width.h"
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

// Returns an instance of ctc_sums or of ctc_best_scores.
mps::Instance InstanceOf(const char *source, const char *kernel, FsaVec &fsas) {
  return mps::FitInstance(
      source, kernel, ToTorch(fsas.values),
      mps::ThreadsOfFsa(fsas.TotSize(1), fsas.Dim0(), LanesOfCtcState(fsas)),
      kSimdWidth);
}

// Returns the number of floats in a DoubleSum or in a FloatSum, see ctc_sums.h.
int32_t FloatsOfSum(bool use_double) { return use_double ? 3 : 2; }

// How many floats a state takes in BlockMemory, see ctc_blocks.h.
struct FloatsOfState {
  int32_t of_sum;  // in BlockMemory::sums
  int32_t of_row;  // in a row of BlockMemory::rows
};

// Returns the number of rows in a block, that is, from one checkpoint to the
// next.  The number is a power of 2.  If the number is 1, each row is a
// checkpoint.  The checkpoints take the memory that all rows would take,
// divided by this number.
//
// Three limits apply.  Beyond `most` rows, longer blocks would save little more
// memory.  A block has at most an 8th of all rows, so that a block takes little
// time compared with the pass through all rows.  For most FSAs, threadgroup
// memory (`block_floats` floats) should hold half of a block's rows.
int32_t RowsOfBlock(int64_t states_of_fsa, int32_t num_rows, int32_t most,
                    FloatsOfState floats, int32_t block_floats) {
  constexpr int32_t kSumsOfState = 4;  // two for each direction
  const int64_t rows_that_fit =
      (block_floats / states_of_fsa - kSumsOfState * floats.of_sum) /
      floats.of_row;
  most = std::min(most, num_rows / 8);
  int32_t rows = 1;
  while (2 * rows <= most && rows <= rows_that_fit) rows *= 2;
  return rows;
}

uint32_t NumBlocks(const CtcParams &params, int32_t rows_of_block) {
  return params.num_fsas *
         ((params.num_rows + rows_of_block - 1) / rows_of_block);
}

// Returns the number of states in the checkpoints of both directions.
int64_t NumCheckpoints(const CtcParams &params, int32_t rows_of_block) {
  return 2 * (params.num_rows / rows_of_block + 1) *
         int64_t{params.num_states};
}

// The arguments of all kernels.
struct CtcInputs {
  mps::Arguments arguments;
  CtcParams params;
  torch::TensorOptions floats;
};

CtcInputs GetInputs(CtcCall &call) {
  FsaVec &graphs = call.graphs;
  DenseFsaVec &dense = call.dense;
  Array1<int32_t> state_begins = graphs.RowSplits(1),
                  leaving_begins = graphs.RowSplits(2),
                  b_begins = dense.shape.RowSplits(1);
  const int32_t num_fsas = graphs.Dim0(), num_states = leaving_begins.Dim() - 1,
                num_arcs = graphs.values.Dim(),
                states_of_fsa = num_states / num_fsas + 1;
  K2_CHECK_EQ(num_fsas, dense.shape.Dim0());
  const bool has_penalties = call.penalized.has_value();
  CtcParams params = {};
  params.num_fsas = num_fsas;
  params.num_states = num_states;
  params.num_arcs = num_arcs;
  params.num_rows = call.num_rows;
  params.num_words = num_arcs / kSimdWidth + num_fsas;
  params.stride = dense.scores.ElemStride0();
  params.num_columns = dense.scores.Dim1();
  params.width = LanesOfCtcState(graphs);
  params.rows_of_best_block =
      RowsOfBlock(states_of_fsa, call.num_rows, 8, {1, 1}, kCtcBestFloats);
  params.rows_of_block =
      call.all_sums
          ? 1
          : RowsOfBlock(states_of_fsa, call.num_rows, 16,
                        {FloatsOfSum(call.use_double), FloatsOfSum(false)},
                        kCtcSumFloats);
  params.has_penalties = has_penalties;
  params.penalty = call.penalty;
  params.beam = call.output_beam;
  const torch::Tensor b_scores = ToTorch(dense.scores);
  const GraphIndex &index = call.index;
  return {
      {mps::In(kCtcArcs, ToTorch(graphs.values)),
       mps::In(kCtcStateBegins, ToTorch(state_begins)),
       mps::In(kCtcLeavingBegins, ToTorch(leaving_begins)),
       mps::In(kCtcIncomingBegins, index.incoming_begins),
       mps::In(kCtcIncoming, index.incoming), mps::In(kCtcBScores, b_scores),
       mps::In(kCtcBBegins, ToTorch(b_begins)),
       // Metal binds no empty buffer.  Without penalties, no kernel reads
       // the argument.
       mps::In(kCtcPenalized,
               has_penalties ? *call.penalized : index.fsa_of_arc),
       mps::In(kCtcParams, params)},
      params,
      b_scores.options()};
}

// Encodes ctc_best_scores, ctc_best_path and ctc_keep.  Returns CtcSaved::kept.
torch::Tensor KeptArcs(CtcCall &call, const CtcInputs &inputs) {
  const CtcParams &params = inputs.params;
  const torch::TensorOptions floats = inputs.floats,
                             ints = floats.dtype(torch::kInt);
  const int32_t rows = params.rows_of_best_block;
  const uint32_t num_fsas = params.num_fsas;
  torch::Tensor best = torch::empty({NumCheckpoints(params, rows)}, floats),
                best_totals = torch::empty({params.num_fsas, 2}, floats),
                scratch = torch::empty(
                    {params.num_states, kCtcScratchRows + 4}, floats),
                best_arcs =
                    torch::empty({params.num_fsas, params.num_rows}, ints),
                kept =
                    torch::empty({params.num_rows, params.num_words}, ints);
  const mps::Instance scores =
      InstanceOf(kBest, "ctc_best_scores", call.graphs);
  mps::Launch(
      kBest, scores.kernel, {2 * num_fsas, scores.threads},
      mps::Join(inputs.arguments, {mps::Out(kCtcBest, best),
                                   mps::Out(kCtcBestTotals, best_totals),
                                   mps::Out(kCtcScratch, scratch)}));
  mps::Launch(kBest, "ctc_best_path", {num_fsas, kCtcThreads},
              mps::Join(inputs.arguments, {mps::In(kCtcBest, best),
                                           mps::In(kCtcBestTotals, best_totals),
                                           mps::Out(kCtcBestArcs, best_arcs),
                                           mps::Out(kCtcScratch, scratch)}));
  mps::Launch(
      kBest, "ctc_keep", {NumBlocks(params, rows), kCtcThreads},
      mps::Join(inputs.arguments,
                {mps::In(kCtcBest, best), mps::In(kCtcBestTotals, best_totals),
                 mps::In(kCtcBestArcs, best_arcs), mps::Out(kCtcKept, kept),
                 mps::Out(kCtcScratch, scratch)}));
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
  // One dispatch goes through all rows.  If there are too many rows for one
  // dispatch, k2 makes the lattice, because LaunchInParts() divides the kernels
  // that make lattices.
  return work != 0 &&
         mps::PreferMetal(mps::Operation::kCtcLoss, work, num_rows,
                          count_waves) &&
         mps::NumParts(work, num_rows, num_waves) == 1;
}

std::pair<torch::Tensor, CtcSaved> CtcForward(CtcCall &call) {
  NVTX_RANGE(K2_FUNC);
  const CtcInputs inputs = GetInputs(call);
  const CtcParams &params = inputs.params;
  // KeptArcs() frees its other tensors before `sums` is allocated, so the
  // memory of these tensors can be reused for `sums`.
  torch::Tensor kept = KeptArcs(call, inputs);

  const torch::TensorOptions floats = inputs.floats;
  const int32_t rows = params.rows_of_block,
                floats_of_sum = FloatsOfSum(call.use_double);
  torch::Tensor sums = torch::empty({NumCheckpoints(params, rows),
                                     rows == 1 ? 2 : floats_of_sum},
                                    floats),
                scratch = torch::empty(
                    {4 * int64_t{params.num_states}, floats_of_sum}, floats),
                totals = torch::empty({params.num_fsas, 2}, floats),
                scores = torch::empty({params.num_fsas}, floats);
  const mps::Instance instance =
      InstanceOf(kCtc, call.use_double ? "ctc_sums_double" : "ctc_sums_float",
                 call.graphs);
  mps::Launch(
      kCtc, instance.kernel,
      {static_cast<uint32_t>(2 * params.num_fsas), instance.threads},
      mps::Join(
          inputs.arguments,
          {mps::In(kCtcKept, kept), mps::In(kCtcLabels, call.index.labels),
           mps::Out(kCtcSums, sums), mps::Out(kCtcTotals, totals),
           mps::Out(kCtcScores, scores), mps::Out(kCtcScratch, scratch)}));
  return {scores, {kept, sums, totals}};
}

std::pair<torch::Tensor, torch::Tensor> CtcBackward(CtcCall &call,
                                                    const CtcSaved &saved,
                                                    torch::Tensor score_grads,
                                                    bool need_graphs,
                                                    bool need_dense) {
  NVTX_RANGE(K2_FUNC);
  const CtcInputs inputs = GetInputs(call);
  const CtcParams &params = inputs.params;
  const torch::TensorOptions floats = inputs.floats;
  const mps::Arguments arguments =
      mps::Join(inputs.arguments,
                {mps::In(kCtcKept, saved.kept), mps::In(kCtcSums, saved.sums),
                 mps::In(kCtcTotals, saved.totals),
                 mps::In(kCtcScoreGrads, score_grads.contiguous())});
  torch::Tensor a_grad, b_grad;
  if (need_graphs) {
    a_grad = torch::empty({params.num_arcs}, floats);
    mps::Launch(
        kCtc, "ctc_arc_gradient", mps::GridOf(params.num_arcs, kCtcThreads),
        mps::Join(arguments, {mps::In(kCtcFsaOfArc, call.index.fsa_of_arc),
                              mps::Out(kCtcAGrad, a_grad)}));
  }
  if (need_dense) {
    b_grad =
        torch::empty({call.dense.scores.Dim0(), params.num_columns}, floats);
    const int32_t rows = params.rows_of_block;
    const mps::Grid grid = {NumBlocks(params, rows), kCtcThreads};
    const mps::Arguments of_dense =
        mps::Join(arguments, {mps::In(kCtcByLabel, call.index.by_label),
                              mps::Out(kCtcBGrad, b_grad)});
    if (rows == 1) {
      mps::Launch(kCtc, "ctc_gradient", grid, of_dense);
    } else {
      const int32_t floats_of_state =
          2 * kCtcScratchRows + 4 * FloatsOfSum(call.use_double);
      torch::Tensor scratch =
          torch::empty({params.num_states, floats_of_state}, floats);
      mps::Launch(kCtc,
                  call.use_double ? "ctc_block_gradient_double"
                                  : "ctc_block_gradient_float",
                  grid, mps::Join(of_dense, {mps::Out(kCtcScratch, scratch)}));
    }
  }
  return {a_grad, b_grad};
}

}  // namespace k2
