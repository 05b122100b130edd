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
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "k2/csrc/mps/gpu_array.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/intersect_dense_pruned.h"
#include "k2/csrc/mps/kernels/pruned.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/placement.h"
#include "k2/csrc/mps/pruned_problem.h"
#include "k2/csrc/mps/pruned_stream.h"
#include "k2/csrc/torch_util.h"
#include "k2/csrc/utils.h"

namespace k2 {

namespace {

constexpr const char *kPrunedStream = "pruned_stream";
constexpr const char *kSearchStream = "search_stream";
constexpr const char *kStepStream = "step_stream";

int64_t SumOf(const int32_t *values, int32_t n) {
  int64_t ans = 0;
  for (int32_t i = 0; i < n; ++i) ans += values[i];
  return ans;
}

// Returns new memory for num_rows rows of row_size elements.  The first `used`
// rows are copied from `old`, which may be undefined if `used` is 0.
torch::Tensor CopyOf(const torch::Tensor &old, int64_t used, int64_t num_rows,
                     int64_t row_size) {
  torch::Tensor ans = GpuTensor<int32_t>(num_rows * row_size);
  if (old.defined())
    ans.narrow(0, 0, used * row_size).copy_(old.narrow(0, 0, used * row_size));
  return ans;
}

// Returns the history of `after`, the stream that continues `before`.  The
// history has the arcs and states of `before`, and memory for the arcs and
// states that `after` adds.
std::shared_ptr<PrunedHistory> HistoryOf(const PrunedStream &after,
                                         const PrunedStream &before) {
  // `before.history` cannot be extended if another stream that continues from
  // the same chunk has extended it, or if `before.history` has too little
  // room.  At least one element stays free, because Save() binds the free part
  // of `arcs`, and Metal binds no empty buffer.
  std::shared_ptr<PrunedHistory> ans = before.history;
  if (!ans || ans->num_arcs != before.old_arcs ||
      ans->num_states != before.old_states ||
      ans->arcs.numel() <= 4 * after.old_arcs ||
      ans->times.numel() < after.old_states) {
    const PrunedHistory nothing, &from = ans ? *ans : nothing;
    auto copy = std::make_shared<PrunedHistory>();
    copy->arcs =
        CopyOf(from.arcs, before.old_arcs, 2 * after.old_arcs + 1024, 4);
    copy->times =
        CopyOf(from.times, before.old_states, 2 * after.old_states + 1024, 1);
    ans = copy;
  }
  ans->num_arcs = after.old_arcs;
  ans->num_states = after.old_states;
  return ans;
}

SavedLayout LayoutOf(const PrunedStream &stream) {
  return LayoutOfSaved(SumOf(stream.num_states, kPrSaved),
                       SumOf(stream.num_arcs, kPrHistory), stream.num_columns);
}

// Returns the properties of the lattice of a stream after a chunk.
// `info` has the kernels' infos of the chunk.
int32_t PropertiesOf(const PrunedStream &stream, const int32_t *info,
                     int32_t num_states, int32_t num_arcs) {
  return WithoutLacking(
      kFsaAllProperties & ~(stream.lacks | info[kPrLiveNotProperties]),
      num_states, num_arcs, stream.entered + info[kPrLiveEntered],
      stream.left + info[kPrLiveLeft]);
}

}  // namespace

// A chunk: its streams, and the memory in which the kernels decode it.
struct PrunedStreams::Batch {
  int32_t num_seqs;
  int32_t groups;  // the number of threadgroups that work on a sequence
  std::vector<int32_t> num_frames;
  std::vector<std::shared_ptr<PrunedStream>> streams;  // all are non-null
  PrunedRoom room = {};
  PrunedParams params = {};
  torch::Tensor arcs, state_begins, leaving_begins;  // of the graph
  torch::Tensor scores, b_begins;
  PrunedMemory memory;
  std::vector<int32_t> row_begins;

  // The kernel that searches, and its grid.
  const char *Kernel() const {
    return groups == 1 ? kSearchStream : kStepStream;
  }
  mps::Grid Grid() const {
    return {static_cast<uint32_t>(num_seqs * groups),
            mps::FitThreads(kPrunedStream, Kernel(), arcs,
                            PrunedThreads(groups), kSimdWidth)};
  }

  // The arguments of search_stream, step_stream and describe_stream.
  mps::Arguments Arguments() const {
    return mps::Join(
        {mps::In(kPrunedArcs, arcs), mps::In(kPrunedStateBegins, state_begins),
         mps::In(kPrunedLeavingBegins, leaving_begins),
         mps::In(kPrunedBScores, scores), mps::In(kPrunedBBegins, b_begins),
         mps::In(kPrunedParams, params)},
        memory.Arguments());
  }
  // Returns the number, in the stream's lattice, of the state that has number 0
  // in this chunk.
  int32_t Base(int32_t i) const {
    const PrunedStream &stream = *streams[i];
    if (stream.old_states == 0) return 0;
    return static_cast<int32_t>(stream.old_states -
                                stream.num_states[stream.FirstFrame()]);
  }
  // Returns the end of the chunk's window.
  int32_t End(int32_t i) const { return kPrHistory + num_frames[i]; }
  // Returns the first frame that the next chunk can still change.
  int32_t Next(int32_t i) const {
    return PrunedChunkNext(streams[i]->FirstFrame(), End(i));
  }

  // Makes the PrunedStream that continues stream i after the chunk.  Save()
  // fills its memory.
  //
  // info   [kPrNumInfos], what the kernels have written about the stream
  std::shared_ptr<PrunedStream> StreamAfter(int32_t i,
                                            const int32_t *info) const;
  // Launches the kernel that saves what the next chunk of stream i needs.
  void Save(int32_t i, int32_t num_frozen_arcs,
            const PrunedStream &after) const;
  // Launches the kernel that writes the lattice of a stream.
  void Emit(const PrunedStreamEmit &emit, const torch::Tensor &old_arcs,
            const PrunedFsas &fsas, const torch::Tensor &arc_map) const;
};

std::shared_ptr<PrunedStream> PrunedStreams::Batch::StreamAfter(
    int32_t i, const int32_t *info) const {
  const PrunedStream &before = *streams[i];
  auto ans = std::make_shared<PrunedStream>();
  ans->num_frames = before.num_frames + num_frames[i];
  ans->num_columns = params.num_columns;
  ans->beam = IntAsFloat(info[kPrBeam + (End(i) & 1)]);
  for (int32_t k = 0; k < kPrSaved; ++k) {
    ans->num_states[k] = info[kPrFrameSizes + 2 * k];
    ans->num_arcs[k] = info[kPrFrameSizes + 2 * k + 1];
  }
  ans->old_states = Base(i) + info[kPrFrozenStates];
  ans->old_arcs = before.old_arcs + info[kPrFrozenArcs];
  ans->lacks = before.lacks | info[kPrNotProperties];
  ans->entered = before.entered + info[kPrEntered];
  ans->left = before.left + info[kPrLeft];
  ans->history = HistoryOf(*ans, before);
  ans->saved = GpuTensor<int32_t>(LayoutOf(*ans).size);
  return ans;
}

void PrunedStreams::Batch::Save(int32_t i, int32_t num_frozen_arcs,
                                const PrunedStream &after) const {
  const PrunedStream &before = *streams[i];
  PrunedSave save = {};
  save.index = i;
  save.first_row = row_begins[i];
  save.begin = before.FirstFrame();
  save.next = Next(i);
  save.end = End(i);
  save.is_new = before.old_states == 0;
  save.num_states = SumOf(after.num_states, kPrSaved);
  save.num_arcs = SumOf(after.num_arcs, kPrHistory);
  save.base = Base(i);
  save.time = static_cast<int32_t>(before.num_frames) - kPrHistory;
  save.num_out_arcs = num_frozen_arcs;
  const int32_t most =
      std::max({save.num_states, save.num_arcs, save.num_out_arcs,
                kPrHistory * params.num_columns});
  const torch::Tensor &history = after.history->arcs;
  const int64_t num_old = 4 * before.old_arcs;
  mps::Launch(
      kPrunedStream, "save_stream", mps::GridOf(std::min(most, 1 << 16)),
      {mps::Out(kStreamRings, memory.rings),
       mps::In(kStreamLattice, memory.lattice), mps::In(kStreamScores, scores),
       mps::In(kStreamParams, params), mps::Out(kStreamSaved, after.saved),
       mps::Out(kStreamOldArcs,
                history.narrow(0, num_old, history.numel() - num_old)),
       mps::Out(kStreamOldTimes, after.history->times),
       mps::In(kStreamSave, save)});
}

void PrunedStreams::Batch::Emit(const PrunedStreamEmit &emit,
                                const torch::Tensor &old_arcs,
                                const PrunedFsas &fsas,
                                const torch::Tensor &arc_map) const {
  mps::Launch(kPrunedStream, "emit_stream",
              mps::GridOf(std::max(emit.num_states + 1, emit.num_arcs)),
              {mps::In(kStreamOldArcs, old_arcs),
               mps::In(kStreamLattice, memory.lattice),
               mps::In(kStreamParams, params), mps::In(kStreamArcs, arcs),
               mps::Out(kStreamRowSplits2, fsas.row_splits2),
               mps::Out(kStreamRowIds1, fsas.row_ids1),
               mps::Out(kStreamRowIds2, fsas.row_ids2),
               mps::Out(kStreamOutArcs, fsas.arcs),
               mps::Out(kStreamArcMap, arc_map), mps::In(kStreamEmit, emit)});
}

// Sets batch->room (the numbers of states and arcs for which each sequence gets
// memory) and the kernels' parameters.  Returns false if the memory of all
// sequences would exceed kPrunedMaxBytes.
//
// The numbers are estimates.  A kernel that has too little memory writes an
// error, and Enlarge() then raises rings_ or out_arcs_ for the next attempt.
bool PrunedStreams::Fit(Batch *batch) {
  const int32_t most_frames =
      *std::max_element(batch->num_frames.begin(), batch->num_frames.end());
  PrunedProblem problem(graph_, batch->num_seqs, most_frames + 1,
                        options_.max_active);
  const int64_t active = rings_ * problem.active,
                leaving = rings_ * problem.leaving;
  // The states and arcs that the rings get from the stream's last chunk.
  int64_t states = 2, arcs = 2, num_rows = 0;
  for (const auto &stream : batch->streams) {
    states = std::max(states, SumOf(stream->num_states, kPrSaved));
    arcs = std::max(arcs, SumOf(stream->num_arcs, kPrSaved));
  }
  // The rings hold all frames of the chunk, and the frame after them.
  PrunedRoom room;
  room.max_states = states + (most_frames + 1) * active + 2;
  room.max_arcs = arcs + (most_frames + 1) * leaving + 2;
  // The lattice has few arcs of each frame of the chunk, all arcs of the last
  // frame, and the arcs of the last chunk that pruning can still remove.
  room.max_out_arcs =
      std::max((most_frames + 2) * std::min(leaving, kPrunedExpectedArcs) +
                   leaving + arcs,
               out_arcs_);
  // Most states have two arcs or more.  All active states of the last frame
  // become states of the lattice.
  room.max_out_states =
      room.max_out_arcs / 2 + active + states + most_frames + 3;
  for (int32_t n : batch->num_frames) num_rows += n + 1 + kPrHistory;
  const int32_t rows_of_seq = most_frames + 1 + kPrHistory;
  const int64_t of_seq = room.BytesOfRings(rows_of_seq) + room.BytesOfOutput();
  const int64_t bytes = batch->num_seqs * of_seq +
                        16 * problem.num_states * num_streams_ +
                        4 * num_rows * batch->params.num_columns;
  if (bytes > kPrunedMaxBytes) return false;
  batch->room = room;
  PrunedParams &params = batch->params;
  params.num_seqs = batch->num_seqs;
  params.at_once = num_streams_;
  params.num_rows = rows_of_seq;
  params.shared_graph = 1;
  params.num_states = static_cast<int32_t>(problem.num_states);
  params.stride = params.num_columns;
  SetOptions(options_, &params);
  room.SetParams(&params);
  params.streaming = 1;
  return true;
}

void PrunedStreams::Allocate(Batch *batch) {
  const PrunedParams &params = batch->params;
  const int32_t n = batch->num_seqs;
  // After a chunk without errors, Decode() puts the tables back into tables_.
  // After an error of a kernel, of Metal or of an allocation, the tables may
  // have entries, and Decode() does not put them back.
  torch::Tensor tables = std::exchange(tables_, torch::Tensor());
  if (!tables.defined()) {
    const int32_t num_pairs = 2 * params.num_states * num_streams_;
    tables = GpuTensor<int32_t>(2 * int64_t{num_pairs});
    mps::Launch("pruned", "start_pruned",
                mps::GridOf(std::min(num_pairs, 1 << 16)),
                {mps::Out(kPrunedTable, tables),
                 mps::Out(kPrunedInfos, GpuTensor<int32_t>(1)),
                 mps::In(kPrunedDispatch, PrunedStartParams{num_pairs, 0})});
  }
  batch->row_begins = {0};
  for (int32_t i = 0; i < n; ++i)
    batch->row_begins.push_back(batch->row_begins[i] + batch->num_frames[i] +
                                1 + kPrHistory);
  batch->scores =
      GpuTensor<float>(int64_t{batch->row_begins.back()} * params.num_columns);
  batch->b_begins = GpuTensor<int32_t>(n + 1);
  Array1<int32_t> state_begins = graph_.RowSplits(1),
                  leaving_begins = graph_.RowSplits(2);
  batch->state_begins = ToTorch(state_begins);
  batch->leaving_begins = ToTorch(leaving_begins);
  batch->memory = batch->room.Allocate(
      tables, GpuTensor<int32_t>(n * kPrNumInfos), n, n, params.num_rows);
}

void PrunedStreams::Load(const Batch &batch, DenseFsaVec &b_fsas) {
  int32_t from_row = 0;
  for (int32_t i = 0; i < batch.num_seqs; ++i) {
    const PrunedStream &stream = *batch.streams[i];
    PrunedLoad load = {};
    load.index = i;
    load.is_new = stream.old_states == 0;
    load.num_rows = batch.num_frames[i] + 1;
    load.from_row = from_row;
    load.to_row = batch.row_begins[i];
    load.stride = b_fsas.scores.ElemStride0();
    load.beam = FloatAsInt(load.is_new ? options_.search_beam : stream.beam);
    load.base = batch.Base(i);
    load.first_frame = stream.FirstFrame();
    std::copy_n(stream.num_states, kPrSaved, load.num_states);
    std::copy_n(stream.num_arcs, kPrSaved, load.num_arcs);
    from_row += load.num_rows;
    const int64_t most = std::max<int64_t>(
        {SumOf(stream.num_states, kPrSaved), SumOf(stream.num_arcs, kPrHistory),
         int64_t{load.num_rows + kPrHistory} * batch.params.num_columns});
    mps::Launch(
        kPrunedStream, "load_stream",
        mps::GridOf(std::min<int64_t>(most, 1 << 16)),
        {mps::In(kStreamSaved, load.is_new ? batch.memory.table : stream.saved),
         mps::In(kStreamChunk, ToTorch(b_fsas.scores)),
         mps::In(kStreamLeavingBegins, batch.leaving_begins),
         mps::Out(kStreamRings, batch.memory.rings),
         mps::Out(kStreamScores, batch.scores),
         mps::Out(kStreamBBegins, batch.b_begins),
         mps::Out(kStreamInfos, batch.memory.infos),
         mps::In(kStreamParams, batch.params), mps::In(kStreamLoad, load)});
  }
}

void PrunedStreams::Search(const Batch &batch) {
  const char *kernel = batch.Kernel();
  const mps::Grid grid = batch.Grid();
  const mps::Arguments arguments = batch.Arguments();
  if (batch.groups == 1) {
    mps::Launch(kPrunedStream, kernel, grid, arguments);
    return;
  }
  auto launch = [&](int32_t phase, int32_t t, int32_t window_step) {
    PrunedStep step = {};
    step.groups = batch.groups;
    step.num_teams = 1;
    step.phase = phase;
    step.t = t;
    step.window_step = window_step;
    mps::Launch(kPrunedStream, kernel, grid,
                mps::Join(arguments, {mps::In(kPrunedDispatch, step)}));
  };
  const int32_t num_rows = batch.params.num_rows;
  launch(kPrStart, 0, 0);
  for (int32_t t = kPrHistory; t < num_rows - 1; ++t) {
    for (int32_t phase = kPrExpand; phase <= kPrMakeStates; ++phase)
      launch(phase, t, 0);
    if (t % kPrShift == 0) mps::Commit();
  }
  launch(kPrExpand, num_rows - 1, 0);
  for (int32_t step = 0; step < PrunedChunkSteps(num_rows); ++step)
    launch(kPrNoPhase, 0, step);
}

bool PrunedStreams::MakeBatch(
    DenseFsaVec &b_fsas, const std::vector<int32_t> &num_frames,
    const std::vector<std::shared_ptr<PrunedStream>> &streams, Batch *batch) {
  const int32_t num_seqs = b_fsas.shape.Dim0();
  if (num_seqs < 1 || num_seqs > num_streams_ ||
      num_seqs != static_cast<int32_t>(streams.size()) ||
      num_seqs != static_cast<int32_t>(num_frames.size()) ||
      graph_.NumElements() == 0 || graph_.Dim0() != 1 ||
      !TakesOptions(options_))
    return false;
  batch->num_seqs = num_seqs;
  batch->num_frames = num_frames;
  for (const auto &stream : streams) {
    // An intersecter with another graph may have begun the stream.
    if (stream && stream->num_columns != b_fsas.scores.Dim1()) return false;
    batch->streams.push_back(stream ? stream
                                    : std::make_shared<PrunedStream>());
  }
  batch->arcs = ToTorch(graph_.values);
  batch->params.num_columns = b_fsas.scores.Dim1();
  return true;
}

bool PrunedStreams::ChooseGroups(int32_t asked, int32_t num_rows, bool all_new,
                                 Batch *batch) {
  const int32_t most_frames =
      *std::max_element(batch->num_frames.begin(), batch->num_frames.end());
  const PrunedProblem problem(graph_, batch->num_seqs, most_frames + 1,
                              options_.max_active);
  batch->groups = problem.Groups(asked, batch->num_seqs);
  const int64_t rounds =
      problem.RoundsOfFrame(batch->groups) * (most_frames + 1);
  auto num_waves = [&] {
    return mps::NumWaves(kPrunedStream, batch->Kernel(), batch->arcs,
                         batch->Grid());
  };
  // A stream that is on the GPU stays there, so the host may be preferred only
  // if all streams are new.
  if (all_new &&
      !mps::PreferMetal(mps::Operation::kIntersectDensePruned,
                        static_cast<double>(problem.leaving) * num_rows,
                        static_cast<double>(rounds), num_waves))
    return false;
  // If the chunk takes too long for one dispatch, several threadgroups work on
  // each sequence: then each step has its own dispatch.
  constexpr int32_t kFewestGroups = 3;  // of kPrThreads threads each
  if (batch->groups == 1 && mps::NumParts(1, rounds, num_waves()) > 1)
    batch->groups = kFewestGroups;
  return true;
}

void PrunedStreams::Enlarge(int32_t errors, const int32_t *infos,
                            int32_t num_seqs) {
  if (errors & kPrSmallRings) rings_ *= 2;
  for (int32_t i = 0; i < num_seqs; ++i) {
    const int32_t *info = infos + i * kPrNumInfos;
    out_arcs_ = std::max<int64_t>(
        {out_arcs_, info[kPrArcs], 2 * int64_t{info[kPrStates]}});
  }
}

std::unique_ptr<PrunedChunk> PrunedStreams::Decode(
    DenseFsaVec &b_fsas, const std::vector<int32_t> &num_frames,
    const std::vector<std::shared_ptr<PrunedStream>> &streams,
    std::string *why_host, int32_t groups) {
  NVTX_RANGE(K2_FUNC);
  std::lock_guard<std::mutex> lock(mutex_);
  why_host->clear();
  Batch batch = {};
  if (!MakeBatch(b_fsas, num_frames, streams, &batch)) return nullptr;
  const bool all_new = std::none_of(
      streams.begin(), streams.end(),
      [](const std::shared_ptr<PrunedStream> &s) { return s != nullptr; });
  if (!ChooseGroups(groups, b_fsas.shape.TotSize(1), all_new, &batch))
    return nullptr;
  for (;;) {
    if (!Fit(&batch)) {
      *why_host = kPrunedTooMuchMemory;
      return nullptr;
    }
    Allocate(&batch);
    Load(batch, b_fsas);
    Search(batch);
    mps::Launch(
        kPrunedStream, "describe_stream",
        {static_cast<uint32_t>(batch.num_seqs) * kPrWideGroups, kPrWideThreads},
        batch.Arguments());
    const int32_t *infos = EvalPtr<int32_t>(batch.memory.infos);
    int32_t errors = 0;
    for (int32_t i = 0; i < batch.num_seqs; ++i)
      errors |= infos[i * kPrNumInfos + kPrError];
    if (errors == 0) {
      tables_ = batch.memory.table;
      return Finish(batch, infos, why_host);
    }
    if (errors & ~(kPrSmallRings | kPrSmallOutput)) {
      *why_host = kPrunedScores;
      return nullptr;
    }
    Enlarge(errors, infos, batch.num_seqs);
  }
}

std::unique_ptr<PrunedChunk> PrunedStreams::Finish(const Batch &batch,
                                                   const int32_t *infos,
                                                   std::string *why_host) {
  const int32_t num_seqs = batch.num_seqs;
  std::vector<int32_t> state_begins{0}, arc_begins{0};
  for (int32_t i = 0; i < num_seqs; ++i) {
    const int32_t *info = infos + i * kPrNumInfos;
    const int64_t states = batch.Base(i) + info[kPrStates],
                  num_arcs = batch.streams[i]->old_arcs + info[kPrArcs];
    if (arc_begins[i] + num_arcs > std::numeric_limits<int32_t>::max() / 4) {
      *why_host = kPrunedTooLargeLattice;
      return nullptr;
    }
    state_begins.push_back(static_cast<int32_t>(state_begins[i] + states));
    arc_begins.push_back(static_cast<int32_t>(arc_begins[i] + num_arcs));
  }
  // This allocation waits for the GPU, so it comes before the launches.
  Array1<int32_t> splits1(graph_.Context(), state_begins);
  const PrunedFsas fsas(state_begins.back(), arc_begins.back());
  const torch::Tensor arc_map = GpuTensor<int32_t>(fsas.num_arcs);
  auto ans = std::make_unique<PrunedChunk>();
  ans->properties = kFsaAllProperties;
  for (int32_t i = 0; i < num_seqs; ++i) {
    const int32_t *info = infos + i * kPrNumInfos;
    const auto stream = batch.StreamAfter(i, info);
    batch.Save(i, info[kPrFrozenArcs], *stream);
    PrunedStreamEmit emit = {};
    emit.index = i;
    emit.num_states = state_begins[i + 1] - state_begins[i];
    emit.num_arcs = arc_begins[i + 1] - arc_begins[i];
    emit.num_old_arcs = static_cast<int32_t>(batch.streams[i]->old_arcs);
    emit.base = batch.Base(i);
    emit.first_state = state_begins[i];
    emit.first_arc = arc_begins[i];
    batch.Emit(emit, stream->history->arcs, fsas, arc_map);
    ans->streams.push_back(stream);
    ans->properties &=
        PropertiesOf(*stream, info, emit.num_states, emit.num_arcs);
  }
  ans->fsas = fsas.ToFsaVec(splits1);
  ans->arc_map = GpuArray<int32_t>(arc_map, fsas.num_arcs);
  return ans;
}

namespace {

// The lists of a DecodeStateInfo, to which the functions below append the
// frames of a stream in order.
struct HostLists {
  std::vector<intersect_pruned_internal::StateInfo> states;
  std::vector<intersect_pruned_internal::ArcInfo> arcs;
  // The number of states before each frame, and of arcs before each state.
  std::vector<int32_t> state_splits{0}, arc_splits{0};

  // dest   the index of the arc's destination among the states of its frame
  void AddArc(int32_t graph_arc, float loglike, int32_t dest) {
    intersect_pruned_internal::ArcInfo info;
    info.a_fsas_arc_idx012 = graph_arc;
    info.arc_loglike = loglike;
    info.u.dest_info_state_idx1 = dest;
    info.end_loglike = 0;
    arcs.push_back(info);
  }
  void EndState() { arc_splits.push_back(static_cast<int32_t>(arcs.size())); }
  void EndFrame() {
    state_splits.push_back(static_cast<int32_t>(states.size()));
  }
};

// Appends the frames before the saved frames.  The scores of the states of
// these frames are 0, because no call reads these scores.
void AddHistory(const PrunedStream &stream, HostLists *lists) {
  const torch::Tensor arcs = stream.history->arcs.cpu(),
                      times = stream.history->times.cpu();
  const int32_t num_frames = static_cast<int32_t>(stream.num_frames),
                first_saved = num_frames - (kPrHistory - stream.FirstFrame());
  const int32_t *time = times.data_ptr<int32_t>();
  std::vector<int32_t> frame_begins(num_frames + 2, 0);
  for (int64_t s = 0; s < stream.old_states; ++s)
    frame_begins[time[s] + 1] += 1;
  for (int32_t t = 0; t <= num_frames; ++t)
    frame_begins[t + 1] += frame_begins[t];

  const int32_t *arc = arcs.data_ptr<int32_t>();
  const int32_t *end = arc + 4 * stream.old_arcs;
  for (int32_t t = 0; t < first_saved; ++t) {
    for (int32_t s = frame_begins[t]; s < frame_begins[t + 1]; ++s) {
      lists->states.push_back({0, 0, 0});
      for (; arc != end && arc[0] == s; arc += 4)
        lists->AddArc(arc[2], IntAsFloat(arc[3]), arc[1] - frame_begins[t + 1]);
      lists->EndState();
    }
    lists->EndFrame();
  }
}

// The host's list of a frame leaves out pruned states.  Returns the index in
// this list of each state of a saved frame, or -1 for a pruned state.
std::vector<int32_t> HostIndexes(const int32_t *num_kept, int32_t num_states) {
  std::vector<int32_t> ans;
  int32_t next = 0;
  for (int32_t j = 0; j < num_states; ++j)
    ans.push_back(num_kept[j] >= 0 ? next++ : -1);
  return ans;
}

// Appends the saved frames.
void AddSavedFrames(FsaVec &graph, const PrunedStream &stream,
                    HostLists *lists) {
  const Arc *graph_arcs = graph.values.Data();
  const int32_t *leaving_begins = graph.RowSplits(2).Data();
  const torch::Tensor saved = stream.saved.cpu();
  const SavedLayout layout = LayoutOf(stream);
  const int32_t *active = saved.data_ptr<int32_t>(),
                *num_kept = active + layout.num_kept,
                *next_states = active + layout.next_states,
                *rows = active + layout.scores;
  for (int32_t t = stream.FirstFrame(); t <= kPrHistory; ++t) {
    const int32_t num_states = stream.num_states[t];
    const bool is_last = t == kPrHistory;
    std::vector<int32_t> indexes;  // of the states that the arcs enter
    if (!is_last)
      indexes = HostIndexes(num_kept + num_states, stream.num_states[t + 1]);
    const int32_t *row = rows + t * stream.num_columns;  // unless is_last
    for (int32_t j = 0; j < num_states; ++j) {
      if (num_kept[j] < 0) continue;
      const int32_t state = active[4 * j], forward = active[4 * j + 1],
                    first_arc = active[4 * j + 2],
                    first_graph_arc = active[4 * j + 3];
      lists->states.push_back({state, forward, 0});
      const int32_t degree =
          is_last ? 0 : leaving_begins[state + 1] - first_graph_arc;
      for (int32_t k = 0; k < degree; ++k) {
        const int32_t dest = next_states[first_arc + k];
        if (dest < 0) continue;
        const Arc &arc = graph_arcs[first_graph_arc + k];
        lists->AddArc(first_graph_arc + k,
                      IntAsFloat(row[arc.label + 1]) + arc.score,
                      indexes[dest]);
      }
      lists->EndState();
    }
    lists->EndFrame();
    // Go to the states and arcs of the next frame.
    active += 4 * num_states;
    num_kept += num_states;
    next_states += stream.num_arcs[t];
  }
}

}  // namespace

DecodeStateInfo PrunedStreams::ToHost(const PrunedStream &stream) {
  HostLists lists;
  AddHistory(stream, &lists);
  AddSavedFrames(graph_, stream, &lists);

  ContextPtr c = graph_.Context();
  Array1<int32_t> splits1(c, lists.state_splits), splits2(c, lists.arc_splits);
  RaggedShape shape =
      RaggedShape3(&splits1, nullptr, -1, &splits2, nullptr, -1);
  DecodeStateInfo ans;
  ans.states = Ragged<intersect_pruned_internal::StateInfo>(
      GetLayer(shape, 0),
      Array1<intersect_pruned_internal::StateInfo>(c, lists.states));
  ans.arcs = Ragged<intersect_pruned_internal::ArcInfo>(
      shape, Array1<intersect_pruned_internal::ArcInfo>(c, lists.arcs));
  ans.beam = stream.beam;
  return ans;
}

}  // namespace k2
