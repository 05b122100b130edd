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

#include <limits>
#include <vector>

#include "k2/csrc/mps/gpu_array.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/intersect_dense.h"
#include "k2/csrc/mps/kernels/intersect_dense.h"
#include "k2/csrc/mps/kernels/lattice.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/placement.h"
#include "k2/csrc/torch_util.h"

namespace k2 {

namespace {

constexpr const char *kIntersectDense = "intersect_dense";
constexpr const char *kKernel = "intersect_dense";
constexpr const char *kLattice = "lattice";

// Returns how many lanes share a state in the forward and the backward pass.
int32_t WidthOf(FsaVec &fsas) {
  return mps::LanesOfState(fsas.NumElements(), fsas.TotSize(1), kIdArcsOfLane);
}

// Returns the grid of the passes: two threadgroups for each FSA.
mps::Grid GridOfPasses(FsaVec &fsas) {
  const int32_t num_fsas = fsas.Dim0();
  const int64_t threads =
      mps::ThreadsOfFsa(fsas.TotSize(1), num_fsas, WidthOf(fsas));
  return {static_cast<uint32_t>(2 * num_fsas),
          mps::FitThreads(kIntersectDense, kKernel, ToTorch(fsas.values),
                          threads, kSimdWidth)};
}

}  // namespace

bool PreferIntersectDenseMps(FsaVec &a_fsas, int64_t num_rows) {
  const int64_t work = a_fsas.NumElements() * num_rows;
  return work != 0 &&
         mps::PreferMetal(mps::Operation::kIntersectDense, work, num_rows, [&] {
           return mps::NumWaves(kIntersectDense, kKernel,
                                ToTorch(a_fsas.values), GridOfPasses(a_fsas));
         });
}

std::unique_ptr<Lattice> IntersectDenseMps(
    FsaVec &a_fsas, const GraphIndex &index, DenseFsaVec &b_fsas,
    int32_t num_rows, const at::Tensor &a_to_b_map, float output_beam,
    int32_t max_states, int32_t max_arcs) {
  NVTX_RANGE(K2_FUNC);
  const int32_t num_fsas = a_fsas.Dim0(), num_arcs = a_fsas.values.Dim(),
                num_states = a_fsas.RowSplits(2).Dim() - 1,
                num_steps = num_rows + 1,
                num_words = num_states / kSimdWidth + num_fsas,
                stride = b_fsas.scores.ElemStride0(),
                num_columns = b_fsas.scores.Dim1();
  const int64_t scores_of_step = 2 * int64_t{num_states},
                num_frames = int64_t{num_fsas} * num_steps;
  TORCH_CHECK(num_frames * kSimdWidth <= std::numeric_limits<int32_t>::max(),
              "intersect_dense on mps counts threads in 32 bits, which ",
              num_fsas, " FSAs with up to ", num_rows,
              " rows exceed; try a smaller batch");

  auto lattice = std::make_unique<Lattice>();
  lattice->num_steps = num_steps;
  lattice->state_begins = a_fsas.RowSplits(1);
  lattice->leaving_begins = a_fsas.RowSplits(2);
  lattice->row_begins = b_fsas.shape.RowSplits(1);
  lattice->a_to_b_map = FromTorch<int32_t>(a_to_b_map);
  lattice->num_rows = b_fsas.scores.Dim0();
  lattice->num_columns = num_columns;
  const torch::Tensor arcs = ToTorch(a_fsas.values),
                      state_begins = ToTorch(lattice->state_begins),
                      leaving_begins = ToTorch(lattice->leaving_begins),
                      b_scores = ToTorch(b_fsas.scores),
                      row_begins = ToTorch(lattice->row_begins),
                      state_scores =
                          GpuTensor<float>(num_steps * scores_of_step);
  const mps::Grid passes = GridOfPasses(a_fsas);
  IntersectDenseParams pass_params = {};
  pass_params.stride = stride;
  pass_params.num_columns = num_columns;
  pass_params.num_states = num_states;
  pass_params.width = WidthOf(a_fsas);
  const int64_t work = int64_t{num_arcs} * num_rows,
                num_waves =
                    mps::NumWaves(kIntersectDense, kKernel, arcs, passes);
  mps::LaunchInParts(
      work, num_rows, num_waves, [&](int32_t first, int32_t last) {
        pass_params.first_row = first;
        pass_params.last_row = last;
        mps::Launch(
            kIntersectDense, kKernel, passes,
            {mps::In(kIdArcs, arcs), mps::In(kIdStateBegins, state_begins),
             mps::In(kIdLeavingBegins, leaving_begins),
             mps::In(kIdIncomingBegins, index.incoming_begins),
             mps::In(kIdIncoming, index.incoming),
             mps::In(kIdBScores, b_scores), mps::In(kIdBBegins, row_begins),
             mps::In(kIdAToBMap, a_to_b_map),
             mps::Out(kIdStateScores, state_scores),
             mps::In(kIdParams, pass_params)});
      });

  LatticeParams params = {};
  params.num_fsas = num_fsas;
  params.num_states = num_states;
  params.num_steps = num_steps;
  params.num_words = num_words;
  params.stride = stride;
  params.num_columns = num_columns;
  torch::Tensor words = GpuTensor<int32_t>(2 * int64_t{num_words} * num_steps),
                counts = GpuTensor<int32_t>(4 * num_frames),
                frame_states = GpuTensor<int32_t>(num_frames + 1),
                frame_arcs = GpuTensor<int32_t>(num_frames + 1),
                totals = GpuTensor<int64_t>(kLtNumTotals),
                // Kernels do not read best_arcs while has_best_arcs is 0.
      best_arcs = frame_arcs,
                paths = GpuTensor<int32_t>(3 * num_fsas);
  // Returns the arguments of all kernels of lattice.metal, followed by `more`.
  auto with = [&](const mps::Arguments &more) {
    return mps::Join({mps::In(kLatticeArcs, arcs),
                      mps::In(kLatticeStateBegins, state_begins),
                      mps::In(kLatticeLeavingBegins, leaving_begins),
                      mps::In(kLatticeIncomingBegins, index.incoming_begins),
                      mps::In(kLatticeIncoming, index.incoming),
                      mps::In(kLatticeBScores, b_scores),
                      mps::In(kLatticeBBegins, row_begins),
                      mps::In(kLatticeAToBMap, a_to_b_map),
                      mps::In(kLatticeStateScores, state_scores),
                      mps::In(kLatticeParams, params)},
                     more);
  };
  const mps::Grid frames = mps::GridOf(
      static_cast<int32_t>(num_frames) * kSimdWidth, kLtFrameThreads);
  params.beam = output_beam;
  const int64_t *total = nullptr;
  for (;;) {
    mps::Launch(kLattice, "count_lattice", frames,
                with({mps::In(kLatticeBestArcs, best_arcs),
                      mps::Out(kLatticeWords, words),
                      mps::Out(kLatticeCounts, counts)}));
    const char *place = "place_lattice";
    mps::Launch(
        kLattice, place,
        {1, mps::FitThreads(kLattice, place, arcs, num_frames, kSimdWidth)},
        with({mps::In(kLatticeBestArcs, best_arcs),
              mps::In(kLatticeCounts, counts),
              mps::Out(kLatticeFrameStates, frame_states),
              mps::Out(kLatticeFrameArcs, frame_arcs),
              mps::Out(kLatticeTotals, totals)}));
    total = EvalPtr<int64_t>(totals);
    if (total[kLtStates] > max_states || total[kLtLeavingArcs] > max_arcs)
      return nullptr;
    if (params.has_best_arcs || !total[kLtRounding]) break;
    best_arcs = GpuTensor<int32_t>(num_frames);
    params.has_best_arcs = 1;
    // find_best_paths has one simdgroup for each FSA, so it runs in no more
    // waves than the passes.
    mps::LaunchInParts(
        work, num_steps, num_waves, [&](int32_t first, int32_t last) {
          mps::Launch(
              kLattice, "find_best_paths",
              mps::GridOf(num_fsas * kSimdWidth, kLtFrameThreads),
              with({mps::Out(kLatticeBestArcs, best_arcs),
                    mps::Out(kLatticePaths, paths),
                    mps::In(kLatticeSteps, BestPathsParams{first, last})}));
        });
  }
  const float difference =
      __builtin_bit_cast(float, static_cast<int32_t>(total[kLtDifference]));
  if (difference >= 1.0f)
    K2_LOG(WARNING) << "Forward and backward total scores differ by "
                    << difference;

  const int32_t ans_states = total[kLtStates], ans_arcs = total[kLtArcs],
                lacks = total[kLtNotProperties];
  lattice->properties = lacks & kLtUnknown ? -1 : kFsaAllProperties & ~lacks;
  torch::Tensor row_splits1 = GpuTensor<int32_t>(num_fsas + 1),
                row_ids1 = GpuTensor<int32_t>(ans_states),
                row_splits2 = GpuTensor<int32_t>(ans_states + 1),
                row_ids2 = GpuTensor<int32_t>(ans_arcs),
                out = GpuTensor<int32_t>(4 * int64_t{ans_arcs}),
                map_a = GpuTensor<int32_t>(ans_arcs),
                map_b = GpuTensor<int32_t>(ans_arcs);
  mps::Launch(
      kLattice, "emit_lattice", frames,
      with({mps::In(kLatticeBestArcs, best_arcs), mps::In(kLatticeWords, words),
            mps::In(kLatticeFrameStates, frame_states),
            mps::In(kLatticeFrameArcs, frame_arcs),
            mps::Out(kLatticeRowSplits1, row_splits1),
            mps::Out(kLatticeRowIds1, row_ids1),
            mps::Out(kLatticeRowSplits2, row_splits2),
            mps::Out(kLatticeRowIds2, row_ids2), mps::Out(kLatticeOut, out),
            mps::Out(kLatticeArcMapA, map_a),
            mps::Out(kLatticeArcMapB, map_b)}));
  lattice->frame_states = GpuArray<int32_t>(frame_states, num_frames + 1);
  lattice->frame_arcs = GpuArray<int32_t>(frame_arcs, num_frames + 1);
  lattice->arc_map_a = GpuArray<int32_t>(map_a, ans_arcs);
  lattice->arc_map_b = GpuArray<int32_t>(map_b, ans_arcs);
  Array1<int32_t> splits1 = GpuArray<int32_t>(row_splits1, num_fsas + 1),
                  ids1 = GpuArray<int32_t>(row_ids1, ans_states),
                  splits2 = GpuArray<int32_t>(row_splits2, ans_states + 1),
                  ids2 = GpuArray<int32_t>(row_ids2, ans_arcs);
  lattice->fsas = FsaVec(
      RaggedShape3(&splits1, &ids1, ans_states, &splits2, &ids2, ans_arcs),
      GpuArray<Arc>(out, ans_arcs));
  return lattice;
}

}  // namespace k2
