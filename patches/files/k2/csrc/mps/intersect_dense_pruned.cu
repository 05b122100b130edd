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
#include <functional>
#include <limits>
#include <map>
#include <mutex>  // NOLINT
#include <string>
#include <tuple>
#include <vector>

#include "k2/csrc/array_ops.h"
#include "k2/csrc/fsa_utils.h"
#include "k2/csrc/mps/gpu_array.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/intersect_dense_pruned.h"
#include "k2/csrc/mps/kernels/pruned.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/placement.h"
#include "k2/csrc/mps/pruned_problem.h"
#include "k2/csrc/torch_util.h"

namespace k2 {

namespace {

constexpr const char *kPruned = "pruned";
constexpr const char *kSearch = "search_pruned";
constexpr const char *kStep = "step_pruned";

std::mutex g_mutex;  // of g_needed

// Does what FsaToFsaVec() does, but the host does not wait.  The graph must
// have arcs.
FsaVec AsFsaVec(FsaOrVec &graph) {
  if (graph.NumAxes() == 3) return graph;
  const int32_t num_states = graph.Dim0();
  torch::Tensor begins =
      torch::arange(0, int64_t{num_states} + 1, num_states,
                    torch::dtype(torch::kInt).device(torch::kMPS, 0));
  Array1<int32_t> splits1 = GpuArray<int32_t>(begins, 2),
                  splits2 = graph.RowSplits(1);
  return FsaVec(RaggedShape3(&splits1, nullptr, num_states, &splits2, nullptr,
                             graph.NumElements()),
                graph.values);
}

// How much memory earlier calls needed, if the estimate was too low.
struct Needed {
  int64_t rings = 1;        // multiplies max_states and max_arcs
  int64_t arcs_of_row = 0;  // arcs of a sequence's lattice, divided by its rows
};

// Calls with the same numbers of states and arcs, and with the same estimated
// number of active states, are expected to need the same memory.
using Likeness = std::tuple<int64_t, int64_t, int64_t>;
std::map<Likeness, Needed> g_needed;  // NOLINT

// The memory of a batch.
class Memory {
 public:
  Memory(const PrunedProblem &problem, int32_t groups) : problem_(problem) {
    needed_ = GetNeeded();
    // The rings hold the frames of a window, the frame after the window, and
    // the frame that is being made.  If several threadgroups work on a
    // sequence, dispatches make further frames while they prune a window.
    const int32_t num_frames = kPrWindow + 3 + (groups > 1 ? kPrWindow / 3 : 0);
    room_.max_states = needed_.rings * num_frames * problem.active + 1;
    room_.max_arcs = needed_.rings * num_frames * problem.leaving + 1;
    room_.max_out_arcs =
        problem.num_rows *
        std::max(std::min(problem.leaving, kPrunedExpectedArcs),
                 needed_.arcs_of_row);
    room_.max_out_states = room_.max_out_arcs / 2 + problem.num_rows + 2;
  }

  void EnlargeRings() {
    room_.max_states *= 2;
    room_.max_arcs *= 2;
    needed_.rings *= 2;
    KeepNeeded();
  }
  void EnlargeOutput(int64_t states, int64_t arcs) {
    room_.max_out_states = std::max(room_.max_out_states, states);
    room_.max_out_arcs = std::max(room_.max_out_arcs, arcs);
    const int64_t most = std::max(2 * states, arcs);
    needed_.arcs_of_row =
        std::max(needed_.arcs_of_row, most / problem_.num_rows + 1);
    KeepNeeded();
  }

  // Sets how many sequences have tables and rings at the same time.  Returns
  // false if there is not enough memory for one sequence.
  bool Fit() {
    const int64_t of_table = 4 * sizeof(int32_t) * problem_.num_states,
                  left = kPrunedMaxBytes -
                         problem_.num_seqs * room_.BytesOfOutput() -
                         (problem_.shared_graph ? 0 : of_table);
    const int64_t each = room_.BytesOfRings(problem_.num_rows) +
                         (problem_.shared_graph ? of_table : 0);
    if (left < each) return false;
    // The GPU decodes the sequences in turns of about the same size.
    const int64_t turns = (problem_.num_seqs - 1) / (left / each) + 1;
    at_once_ = (problem_.num_seqs - 1) / turns + 1;
    return true;
  }

  int32_t at_once() const { return at_once_; }
  int64_t NumPairs() const {
    return 2 * problem_.num_states * (problem_.shared_graph ? at_once_ : 1);
  }
  void SetParams(PrunedParams *params) const {
    params->at_once = at_once_;
    room_.SetParams(params);
  }

  PrunedMemory Allocate(const torch::Tensor &infos) const {
    return room_.Allocate(GpuTensor<int32_t>(2 * NumPairs()), infos, at_once_,
                          problem_.num_seqs, problem_.num_rows);
  }

 private:
  Likeness GetLikeness() const {
    return {problem_.num_states, problem_.num_arcs, problem_.active};
  }
  Needed GetNeeded() const {
    std::lock_guard<std::mutex> lock(g_mutex);
    auto found = g_needed.find(GetLikeness());
    return found == g_needed.end() ? Needed() : found->second;
  }
  void KeepNeeded() const {
    constexpr size_t kMostKept = 64;
    std::lock_guard<std::mutex> lock(g_mutex);
    if (g_needed.size() >= kMostKept) g_needed.clear();
    g_needed[GetLikeness()] = needed_;
  }

  const PrunedProblem problem_;
  Needed needed_;
  PrunedRoom room_;
  int64_t at_once_ = 0;
};

// Launches the steps of some sequences, if several threadgroups work on each
// sequence.
class Steps {
 public:
  // Launches step_pruned for a step, with the given number of threadgroups.
  using Launch = std::function<void(const PrunedStep &, uint32_t)>;

  Steps(int32_t first_seq, int32_t count, int32_t groups, int32_t num_rows,
        const Launch &launch)
      : count_(count), num_rows_(num_rows), launch_(launch) {
    step_.first_seq = first_seq;
    step_.groups = groups;
    step_.window = -1;
  }

  void LaunchAll() {
    Do(kPrStart, 0);
    for (int32_t t = 0; t < num_rows_; ++t) {
      for (int32_t phase = kPrExpand; phase <= kPrMakeStates; ++phase)
        Do(phase, t);
      if (t + 1 != PrunedWindowEnd(next_window_, num_rows_)) continue;
      // All frames of the next window have been searched.  The dispatches of
      // the following frames prune this window.
      //
      // Here, only the window before the last one can be unfinished.  Finish it
      // before the last window begins.
      while (step_.window >= 0) Do(kPrNoPhase, t);
      step_.window = next_window_++;
      step_.window_step = 0;
      if (t + 1 != num_rows_) mps::Commit();
    }
    Do(kPrResolve, num_rows_);
    while (step_.window >= 0) Do(kPrNoPhase, num_rows_);
  }

 private:
  // Launches a phase of frame t, and in the same dispatch the next step of the
  // window.
  void Do(int32_t phase, int32_t t) {
    const int32_t window = step_.window;
    step_.phase = phase;
    step_.t = t;
    step_.first_live = PrunedWindowBegin(window >= 0 ? window : next_window_);
    // Whether the dispatch also resolves the arcs of the previous frame; see
    // step_pruned().
    const bool beside = t > 0 && phase == kPrExpand;
    step_.num_teams = (phase != kPrNoPhase ? 1 : 0) + (beside ? 1 : 0) +
                      (window >= 0 ? 1 : 0);
    launch_(step_, count_ * step_.groups * step_.num_teams);
    if (window < 0) return;
    const int32_t num_frames =
        PrunedWindowEnd(window, num_rows_) - PrunedWindowBegin(window);
    if (++step_.window_step == PrunedWindowSteps(num_frames)) step_.window = -1;
  }

  const int32_t count_, num_rows_;
  const Launch launch_;
  PrunedStep step_ = {};
  int32_t next_window_ = 0;
};

// The lattice's sizes and properties.
struct Totals {
  int32_t error = 0;
  int64_t most_states = 0, most_arcs = 0;  // of any sequence
  // [2][num_seqs + 1]: the number of states before each sequence, then the
  // number of arcs before each sequence.
  std::vector<int32_t> begins;
  int64_t num_states = 0, num_arcs = 0;
  int32_t properties = kFsaAllProperties;

  // infos   [num_seqs][kPrNumInfos]
  Totals(const int32_t *infos, int32_t num_seqs) {
    std::vector<int32_t> arc_begins;
    for (int32_t i = 0; i <= num_seqs; ++i) {
      begins.push_back(static_cast<int32_t>(num_states));
      arc_begins.push_back(static_cast<int32_t>(num_arcs));
      if (i == num_seqs) break;
      const int32_t *info = infos + i * kPrNumInfos;
      error |= info[kPrError];
      most_states = std::max<int64_t>(most_states, info[kPrStates]);
      most_arcs = std::max<int64_t>(most_arcs, info[kPrArcs]);
      const int32_t states = info[kPrStates] + info[kPrExtraStates];
      num_states += states;
      num_arcs += info[kPrArcs];
      properties =
          WithoutLacking(properties & ~info[kPrNotProperties], states,
                         info[kPrArcs], info[kPrEntered], info[kPrLeft]);
    }
    K2_CHECK_LE(std::max(num_states, num_arcs), INT32_MAX)
        << "the lattices have too many arcs. Lower output_beam or "
        << "max_active_states, or decode fewer or shorter sequences at once";
    begins.insert(begins.end(), arc_begins.begin(), arc_begins.end());
  }
};

// A batch, and how the GPU decodes it.
struct PrunedBatch {
  const PrunedProblem problem;
  int32_t groups;  // the number of threadgroups that work on a sequence
  Memory memory;
  torch::Tensor arcs;     // of the graphs
  mps::Arguments inputs;  // the graphs and the scores
  PrunedParams params = {};
  mps::Arguments arguments;  // of all kernels

  PrunedBatch(const PrunedProblem &problem, int32_t asked_groups,
              const torch::Tensor &arcs)
      : problem(problem),
        groups(problem.Groups(asked_groups, problem.num_seqs)),
        memory(problem, groups),
        arcs(arcs) {
    // If fewer sequences run at the same time, each can have more cores.
    if (memory.Fit() && groups > 1)
      groups = problem.Groups(asked_groups, memory.at_once());
  }

  // The kernel that searches, and its grid.
  const char *Kernel() const { return groups == 1 ? kSearch : kStep; }
  mps::Grid Grid(uint32_t threadgroups) const {
    return {threadgroups, mps::FitThreads(kPruned, Kernel(), arcs,
                                          PrunedThreads(groups), kSimdWidth)};
  }
  int64_t NumWaves() const {
    return mps::NumWaves(kPruned, Kernel(), arcs,
                         Grid(std::max(memory.at_once(), 1) * groups));
  }
};

// Returns whether Metal is estimated to be faster than the host.
// num_rows_of_all is the number of rows of all sequences.
bool PreferPrunedMetal(const PrunedBatch &batch, int32_t num_rows_of_all) {
  const PrunedProblem &problem = batch.problem;
  // The host works on as many sequences at once as it has threads.
  const double on_host =
      static_cast<double>(problem.leaving) * num_rows_of_all /
      std::min<int32_t>(problem.num_seqs, std::max(at::get_num_threads(), 1));
  const double rounds =
      static_cast<double>(problem.RoundsOfFrame(batch.groups)) *
      problem.num_rows;
  return mps::PreferMetal(mps::Operation::kIntersectDensePruned, on_host,
                          rounds, [&] { return batch.NumWaves(); });
}

// Launches the search of `count` sequences, beginning with sequence `first`.
void LaunchSearch(const PrunedBatch &batch, int32_t first, int32_t count) {
  const PrunedProblem &problem = batch.problem;
  if (batch.groups > 1) {
    auto launch = [&](const PrunedStep &step, uint32_t threadgroups) {
      mps::Launch(kPruned, kStep, batch.Grid(threadgroups),
                  mps::Join(batch.arguments, {mps::In(kPrunedDispatch, step)}));
    };
    Steps(first, count, batch.groups, problem.num_rows, launch).LaunchAll();
    return;
  }
  const int64_t rounds_of_window =
      kPrShift * problem.RoundsOfFrame(batch.groups);
  mps::LaunchInParts(
      1, PrunedNumWindows(problem.num_rows),
      batch.NumWaves() * rounds_of_window, [&](int32_t begin, int32_t end) {
        mps::Launch(kPruned, kSearch, batch.Grid(count),
                    mps::Join(batch.arguments,
                              {mps::In(kPrunedDispatch,
                                       PrunedPart{first, begin, end})}));
      });
}

// Launches the search of all sequences, memory.at_once() at a time.
void LaunchSearches(const PrunedBatch &batch, const PrunedMemory &allocated) {
  const int32_t num_seqs = batch.problem.num_seqs,
                at_once = batch.memory.at_once();
  PrunedStartParams start{static_cast<int32_t>(batch.memory.NumPairs()),
                          num_seqs * kPrNumInfos};
  for (int32_t first = 0; first < num_seqs; first += at_once) {
    if (first != 0) mps::Commit();
    mps::Launch(kPruned, "start_pruned",
                mps::GridOf(std::min(start.num_pairs, 1 << 16)),
                {mps::Out(kPrunedTable, allocated.table),
                 mps::Out(kPrunedInfos, allocated.infos),
                 mps::In(kPrunedDispatch, start)});
    start.num_infos = 0;
    LaunchSearch(batch, first, std::min(at_once, num_seqs - first));
  }
}

// Searches until the memory is enough: if it is not, starts again with more
// memory.  Returns nullopt, and sets *why_host, if the GPU would need too much
// memory, or if the kernels cannot compute with the scores.
torch::optional<Totals> SearchPruned(PrunedBatch *batch,
                                     std::string *why_host) {
  const int32_t num_seqs = batch->problem.num_seqs;
  Memory &memory = batch->memory;
  for (;;) {
    if (!memory.Fit()) {
      *why_host = kPrunedTooMuchMemory;
      return torch::nullopt;
    }
    memory.SetParams(&batch->params);
    const PrunedMemory allocated =
        memory.Allocate(GpuTensor<int32_t>(num_seqs * kPrNumInfos));
    batch->arguments =
        mps::Join(mps::Join(batch->inputs, allocated.Arguments()),
                  {mps::In(kPrunedParams, batch->params)});
    LaunchSearches(*batch, allocated);
    mps::Launch(
        kPruned, "describe_pruned",
        {static_cast<uint32_t>(num_seqs) * kPrWideGroups, kPrWideThreads},
        batch->arguments);
    const Totals totals(EvalPtr<int32_t>(allocated.infos), num_seqs);
    if (totals.error == 0) return totals;
    if (totals.error & ~(kPrSmallRings | kPrSmallOutput)) {
      *why_host = kPrunedScores;
      return torch::nullopt;
    }
    if (totals.error & kPrSmallRings) memory.EnlargeRings();
    memory.EnlargeOutput(totals.most_states, totals.most_arcs);
    // Release the memory, so that the next Allocate() can get it again.
    batch->arguments.clear();
  }
}

// Returns the lattice that SearchPruned() has found.
std::unique_ptr<FramedLattice> EmitPruned(const PrunedBatch &batch,
                                          const Totals &totals,
                                          DenseFsaVec &b_fsas) {
  const int32_t num_seqs = batch.problem.num_seqs,
                num_steps = batch.problem.num_rows + 1,
                num_frames = num_seqs * num_steps,
                num_states = totals.num_states, num_arcs = totals.num_arcs;
  ContextPtr context = b_fsas.Context();
  Array1<int32_t> begins(context, totals.begins),
      sequences = Arange<int32_t>(context, 0, num_seqs);
  const PrunedFsas fsas(num_states, num_arcs);
  torch::Tensor map_a = GpuTensor<int32_t>(num_arcs),
                map_b = GpuTensor<int32_t>(num_arcs),
                frame_states = GpuTensor<int32_t>(num_frames + 1),
                frame_arcs = GpuTensor<int32_t>(num_frames + 1);
  mps::Launch(
      kPruned, "emit_pruned", mps::GridOf(std::max(num_states + 1, num_arcs)),
      mps::Join(
          batch.arguments,
          {mps::In(kPrunedBegins, ToTorch(begins)),
           mps::Out(kPrunedRowSplits2, fsas.row_splits2),
           mps::Out(kPrunedRowIds1, fsas.row_ids1),
           mps::Out(kPrunedRowIds2, fsas.row_ids2),
           mps::Out(kPrunedOutArcs, fsas.arcs), mps::Out(kPrunedArcMapA, map_a),
           mps::Out(kPrunedArcMapB, map_b),
           mps::Out(kPrunedFrameStates, frame_states),
           mps::Out(kPrunedFrameArcs, frame_arcs),
           mps::In(kPrunedDispatch,
                   PrunedEmitParams{num_seqs, num_states, num_arcs})}));
  auto ans = std::make_unique<FramedLattice>();
  ans->fsas = fsas.ToFsaVec(begins.Range(0, num_seqs + 1));
  ans->arc_map_a = GpuArray<int32_t>(map_a, num_arcs);
  ans->arc_map_b = GpuArray<int32_t>(map_b, num_arcs);
  ans->properties = totals.properties;
  ans->num_steps = num_steps;
  ans->frame_states = GpuArray<int32_t>(frame_states, num_frames + 1);
  ans->frame_arcs = GpuArray<int32_t>(frame_arcs, num_frames + 1);
  ans->row_begins = b_fsas.shape.RowSplits(1);
  ans->a_to_b_map = sequences;
  ans->num_rows = b_fsas.scores.Dim0();
  ans->num_columns = b_fsas.scores.Dim1();
  return ans;
}

}  // namespace

std::unique_ptr<FramedLattice> IntersectDensePrunedMps(
    FsaVec &a_fsas, DenseFsaVec &b_fsas, int32_t num_rows,
    const PrunedOptions &options, std::string *why_host, int32_t groups) {
  NVTX_RANGE(K2_FUNC);
  why_host->clear();
  const int32_t num_seqs = b_fsas.shape.Dim0();
  // The host computes the batch if the host's checks may refuse it, or if the
  // kernels cannot compute with the beams.
  if (num_seqs < 1 || num_rows < 1 || a_fsas.NumElements() == 0 ||
      (NumGraphs(a_fsas) != 1 && NumGraphs(a_fsas) != num_seqs) ||
      !TakesOptions(options))
    return nullptr;
  PrunedBatch batch(
      PrunedProblem(a_fsas, num_seqs, num_rows, options.max_active), groups,
      ToTorch(a_fsas.values));
  if (!PreferPrunedMetal(batch, b_fsas.shape.TotSize(1))) return nullptr;

  FsaVec graphs = AsFsaVec(a_fsas);
  Array1<int32_t> state_begins = graphs.RowSplits(1),
                  leaving_begins = graphs.RowSplits(2),
                  row_begins = b_fsas.shape.RowSplits(1);
  batch.inputs = {mps::In(kPrunedArcs, batch.arcs),
                  mps::In(kPrunedStateBegins, ToTorch(state_begins)),
                  mps::In(kPrunedLeavingBegins, ToTorch(leaving_begins)),
                  mps::In(kPrunedBScores, ToTorch(b_fsas.scores)),
                  mps::In(kPrunedBBegins, ToTorch(row_begins))};
  PrunedParams &params = batch.params;
  params.num_seqs = num_seqs;
  params.num_rows = num_rows;
  params.shared_graph = batch.problem.shared_graph;
  params.num_states = static_cast<int32_t>(batch.problem.num_states);
  params.stride = b_fsas.scores.ElemStride0();
  params.num_columns = b_fsas.scores.Dim1();
  SetOptions(options, &params);

  const torch::optional<Totals> totals = SearchPruned(&batch, why_host);
  if (!totals.has_value()) return nullptr;
  if (totals->num_arcs > std::numeric_limits<int32_t>::max() / 4) {
    *why_host = kPrunedTooLargeLattice;
    return nullptr;
  }
  return EmitPruned(batch, *totals, b_fsas);
}

}  // namespace k2
