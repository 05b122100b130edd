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

// A call of IntersectDenseMps(): its inputs, and the scores of all states that
// the passes compute.
struct DenseCall {
  int32_t num_fsas, num_rows;
  int64_t work;       // arcs of all FSAs, for each row
  mps::Grid passes;   // of the kernel of the passes
  int64_t num_waves;  // of the passes
  torch::Tensor arcs, state_begins, leaving_begins;  // of all FSAs
  torch::Tensor incoming_begins, incoming;
  torch::Tensor b_scores, row_begins, a_to_b_map;
  torch::Tensor state_scores;  // [num_steps][2][num_states]
  LatticeParams params = {};

  int64_t NumFrames() const { return int64_t{num_fsas} * params.num_steps; }

  // Returns the grid of the kernels that have a simdgroup for each frame.
  mps::Grid Frames() const {
    return mps::GridOf(static_cast<int32_t>(NumFrames()) * kSimdWidth,
                       kLtFrameThreads);
  }

  // Returns the arguments of all kernels of lattice.metal, followed by `more`.
  mps::Arguments With(const mps::Arguments &more) const {
    return mps::Join({mps::In(kLatticeArcs, arcs),
                      mps::In(kLatticeStateBegins, state_begins),
                      mps::In(kLatticeLeavingBegins, leaving_begins),
                      mps::In(kLatticeIncomingBegins, incoming_begins),
                      mps::In(kLatticeIncoming, incoming),
                      mps::In(kLatticeBScores, b_scores),
                      mps::In(kLatticeBBegins, row_begins),
                      mps::In(kLatticeAToBMap, a_to_b_map),
                      mps::In(kLatticeStateScores, state_scores),
                      mps::In(kLatticeParams, params)},
                     more);
  }
};

DenseCall MakeCall(FsaVec &a_fsas, const GraphIndex &index, DenseFsaVec &b_fsas,
                   int32_t num_rows, const at::Tensor &a_to_b_map) {
  const int32_t num_fsas = a_fsas.Dim0(), num_steps = num_rows + 1,
                num_states = a_fsas.RowSplits(2).Dim() - 1;
  TORCH_CHECK(int64_t{num_fsas} * num_steps * kSimdWidth <=
                  std::numeric_limits<int32_t>::max(),
              "intersect_dense on mps counts threads in 32 bits, which ",
              num_fsas, " FSAs with up to ", num_rows,
              " rows exceed; try a smaller batch");
  DenseCall ans;
  ans.num_fsas = num_fsas;
  ans.num_rows = num_rows;
  ans.work = int64_t{a_fsas.values.Dim()} * num_rows;
  ans.arcs = ToTorch(a_fsas.values);
  ans.passes = GridOfPasses(a_fsas);
  ans.num_waves = mps::NumWaves(kIntersectDense, kKernel, ans.arcs, ans.passes);
  ans.state_begins = ToTorch(a_fsas.RowSplits(1));
  ans.leaving_begins = ToTorch(a_fsas.RowSplits(2));
  ans.incoming_begins = index.incoming_begins;
  ans.incoming = index.incoming;
  ans.b_scores = ToTorch(b_fsas.scores);
  ans.row_begins = ToTorch(b_fsas.shape.RowSplits(1));
  ans.a_to_b_map = a_to_b_map;
  ans.state_scores = GpuTensor<float>(num_steps * 2 * int64_t{num_states});
  ans.params.num_fsas = num_fsas;
  ans.params.num_states = num_states;
  ans.params.num_steps = num_steps;
  ans.params.num_words = num_states / kSimdWidth + num_fsas;
  ans.params.stride = b_fsas.scores.ElemStride0();
  ans.params.num_columns = b_fsas.scores.Dim1();
  return ans;
}

// Computes call.state_scores.
//
// width   how many lanes share a state
void LaunchPasses(const DenseCall &call, int32_t width) {
  IntersectDenseParams params = {};
  params.stride = call.params.stride;
  params.num_columns = call.params.num_columns;
  params.num_states = call.params.num_states;
  params.width = width;
  mps::LaunchInParts(call.work, call.num_rows, call.num_waves,
                     [&](int32_t first, int32_t last) {
                       params.first_row = first;
                       params.last_row = last;
                       mps::Launch(
                           kIntersectDense, kKernel, call.passes,
                           {mps::In(kIdArcs, call.arcs),
                            mps::In(kIdStateBegins, call.state_begins),
                            mps::In(kIdLeavingBegins, call.leaving_begins),
                            mps::In(kIdIncomingBegins, call.incoming_begins),
                            mps::In(kIdIncoming, call.incoming),
                            mps::In(kIdBScores, call.b_scores),
                            mps::In(kIdBBegins, call.row_begins),
                            mps::In(kIdAToBMap, call.a_to_b_map),
                            mps::Out(kIdStateScores, call.state_scores),
                            mps::In(kIdParams, params)});
                     });
}

// The states and arcs that the beam keeps.
struct KeptByBeam {
  torch::Tensor words, counts, frame_states, frame_arcs;  // see lattice.metal
  torch::Tensor totals;                                   // see LatticeTotals
  torch::Tensor best_arcs;  // not read while params.has_best_arcs is 0

  explicit KeptByBeam(const DenseCall &call)
      : words(GpuTensor<int32_t>(2 * int64_t{call.params.num_words} *
                                 call.params.num_steps)),
        counts(GpuTensor<int32_t>(4 * call.NumFrames())),
        frame_states(GpuTensor<int32_t>(call.NumFrames() + 1)),
        frame_arcs(GpuTensor<int32_t>(call.NumFrames() + 1)),
        totals(GpuTensor<int64_t>(kLtNumTotals)),
        best_arcs(frame_arcs) {}
};

// Counts what call.params.beam keeps.  Waits for the GPU, and returns the
// totals.
const int64_t *CountLattice(const DenseCall &call, const KeptByBeam &kept) {
  mps::Launch(kLattice, "count_lattice", call.Frames(),
              call.With({mps::In(kLatticeBestArcs, kept.best_arcs),
                         mps::Out(kLatticeWords, kept.words),
                         mps::Out(kLatticeCounts, kept.counts)}));
  const char *place = "place_lattice";
  mps::Launch(kLattice, place,
              {1, mps::FitThreads(kLattice, place, call.arcs, call.NumFrames(),
                                  kSimdWidth)},
              call.With({mps::In(kLatticeBestArcs, kept.best_arcs),
                         mps::In(kLatticeCounts, kept.counts),
                         mps::Out(kLatticeFrameStates, kept.frame_states),
                         mps::Out(kLatticeFrameArcs, kept.frame_arcs),
                         mps::Out(kLatticeTotals, kept.totals)}));
  return EvalPtr<int64_t>(kept.totals);
}

// Finds the best path of each FSA, on which rounding then prunes no arc.
void FindBestPaths(DenseCall *call, KeptByBeam *kept) {
  kept->best_arcs = GpuTensor<int32_t>(call->NumFrames());
  const torch::Tensor paths = GpuTensor<int32_t>(3 * call->num_fsas);
  call->params.has_best_arcs = 1;
  // find_best_paths has one simdgroup for each FSA, so it runs in no more waves
  // than the passes.
  mps::LaunchInParts(
      call->work, call->params.num_steps, call->num_waves,
      [&](int32_t first, int32_t last) {
        mps::Launch(
            kLattice, "find_best_paths",
            mps::GridOf(call->num_fsas * kSimdWidth, kLtFrameThreads),
            call->With({mps::Out(kLatticeBestArcs, kept->best_arcs),
                        mps::Out(kLatticePaths, paths),
                        mps::In(kLatticeSteps, BestPathsParams{first, last})}));
      });
}

// Counts what the beam keeps.  Returns the totals, or nullptr if the lattice
// would exceed a limit.
const int64_t *CountWithin(float beam, int32_t max_states, int32_t max_arcs,
                           DenseCall *call, KeptByBeam *kept) {
  call->params.beam = beam;
  for (;;) {
    const int64_t *total = CountLattice(*call, *kept);
    if (total[kLtStates] > max_states || total[kLtLeavingArcs] > max_arcs)
      return nullptr;
    if (call->params.has_best_arcs || !total[kLtMayCut]) return total;
    FindBestPaths(call, kept);
  }
}

// Writes the lattice that has these totals.
void EmitLattice(const DenseCall &call, const KeptByBeam &kept,
                 const int64_t *total, Lattice *lattice) {
  const int32_t num_states = total[kLtStates], num_arcs = total[kLtArcs],
                lacks = total[kLtNotProperties];
  const int64_t num_frames = call.NumFrames();
  lattice->properties = lacks & kLtUnknown ? -1 : kFsaAllProperties & ~lacks;
  torch::Tensor row_splits1 = GpuTensor<int32_t>(call.num_fsas + 1),
                row_ids1 = GpuTensor<int32_t>(num_states),
                row_splits2 = GpuTensor<int32_t>(num_states + 1),
                row_ids2 = GpuTensor<int32_t>(num_arcs),
                out = GpuTensor<int32_t>(4 * int64_t{num_arcs}),
                map_a = GpuTensor<int32_t>(num_arcs),
                map_b = GpuTensor<int32_t>(num_arcs);
  mps::Launch(
      kLattice, "emit_lattice", call.Frames(),
      call.With({mps::In(kLatticeBestArcs, kept.best_arcs),
                 mps::In(kLatticeWords, kept.words),
                 mps::In(kLatticeFrameStates, kept.frame_states),
                 mps::In(kLatticeFrameArcs, kept.frame_arcs),
                 mps::Out(kLatticeRowSplits1, row_splits1),
                 mps::Out(kLatticeRowIds1, row_ids1),
                 mps::Out(kLatticeRowSplits2, row_splits2),
                 mps::Out(kLatticeRowIds2, row_ids2),
                 mps::Out(kLatticeOut, out), mps::Out(kLatticeArcMapA, map_a),
                 mps::Out(kLatticeArcMapB, map_b)}));
  lattice->frame_states = GpuArray<int32_t>(kept.frame_states, num_frames + 1);
  lattice->frame_arcs = GpuArray<int32_t>(kept.frame_arcs, num_frames + 1);
  lattice->arc_map_a = GpuArray<int32_t>(map_a, num_arcs);
  lattice->arc_map_b = GpuArray<int32_t>(map_b, num_arcs);
  Array1<int32_t> splits1 = GpuArray<int32_t>(row_splits1, call.num_fsas + 1),
                  ids1 = GpuArray<int32_t>(row_ids1, num_states),
                  splits2 = GpuArray<int32_t>(row_splits2, num_states + 1),
                  ids2 = GpuArray<int32_t>(row_ids2, num_arcs);
  lattice->fsas = FsaVec(
      RaggedShape3(&splits1, &ids1, num_states, &splits2, &ids2, num_arcs),
      GpuArray<Arc>(out, num_arcs));
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
  DenseCall call = MakeCall(a_fsas, index, b_fsas, num_rows, a_to_b_map);
  LaunchPasses(call, WidthOf(a_fsas));
  KeptByBeam kept(call);
  const int64_t *total =
      CountWithin(output_beam, max_states, max_arcs, &call, &kept);
  if (total == nullptr) return nullptr;
  const float difference =
      IntAsFloat(static_cast<int32_t>(total[kLtDifference]));
  if (difference >= 1.0f)
    K2_LOG(WARNING) << "Forward and backward total scores differ by "
                    << difference;

  auto lattice = std::make_unique<Lattice>();
  lattice->num_steps = call.params.num_steps;
  lattice->state_begins = a_fsas.RowSplits(1);
  lattice->leaving_begins = a_fsas.RowSplits(2);
  lattice->row_begins = b_fsas.shape.RowSplits(1);
  lattice->a_to_b_map = FromTorch<int32_t>(a_to_b_map);
  lattice->num_rows = b_fsas.scores.Dim0();
  lattice->num_columns = b_fsas.scores.Dim1();
  EmitLattice(call, kept, total, lattice.get());
  return lattice;
}

}  // namespace k2
