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

#include <metal_stdlib>

using namespace metal;

#include "k2/csrc/mps/kernels/pruned_describe.h"
#include "k2/csrc/mps/kernels/pruned_frame.h"
#include "k2/csrc/mps/kernels/pruned_stream.h"
#include "k2/csrc/mps/kernels/pruned_window.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// OnlineDenseIntersecter on the GPU: intersect_dense_pruned in chunks of
// frames.  The results are bit for bit identical to those of
// MultiGraphDenseIntersectPruned::OnlineIntersect() on the CPU.
//
//   load_stream      puts a stream into the memory of a sequence
//   search_stream    goes through the chunk and prunes it, with one threadgroup
//                    for each sequence
//   step_stream      does one step of search_stream, with several threadgroups
//                    for each sequence
//   describe_stream  counts what the lattice's properties depend on
//   save_stream      saves the stream for the next chunk
//   emit_stream      writes the whole lattice of a stream
//
// The pruning of a chunk changes the frames of the chunk and the kPrHistory
// frames before the chunk.  The next chunk may change the last kPrHistory
// frames of this chunk.  So the part of the lattice that belongs to the last
// kPrHistory frames is written, but not saved.

[[max_total_threads_per_threadgroup(kPrWideThreads)]]
kernel void load_stream(device const int *saved [[buffer(kStreamSaved)]],
                        device const float *chunk [[buffer(kStreamChunk)]],
                        device const int *leaving_begins
                        [[buffer(kStreamLeavingBegins)]],
                        device int *rings [[buffer(kStreamRings)]],
                        device float *scores [[buffer(kStreamScores)]],
                        device int *b_begins [[buffer(kStreamBBegins)]],
                        device int *infos [[buffer(kStreamInfos)]],
                        constant PrunedParams &params [[buffer(kStreamParams)]],
                        constant PrunedLoad &load [[buffer(kStreamLoad)]],
                        uint thread_index [[thread_position_in_grid]],
                        uint num_threads [[threads_per_grid]]) {
  const int thread_id = int(thread_index), threads = int(num_threads),
            num_columns = params.num_columns;
  const Sequence seq = RingsOf(rings, load.index, &params);
  int num_states = 0, num_arcs = 0;
  for (int t = 0; t < kPrSaved; ++t) num_states += load.num_states[t];
  for (int t = 0; t < kPrHistory; ++t) num_arcs += load.num_arcs[t];
  const SavedLayout layout = LayoutOfSaved(num_states, num_arcs, num_columns);
  if (!load.is_new) {
    for (int i = thread_id; i < num_states; i += threads) {
      device const int *from = saved + 4l * i;
      seq.active[i] = Active{from[0], from[1], from[2], from[3]};
      seq.num_kept[i] = saved[layout.num_kept + i];
      seq.numbers[i] = saved[layout.numbers + i] - load.base;
    }
    for (int i = thread_id; i < num_arcs; i += threads)
      seq.next_states[i] = saved[layout.next_states + i];
  }
  device float *to = scores + long(load.to_row) * num_columns;  // NOLINT
  for (int i = thread_id; i < kPrHistory * num_columns; i += threads)
    to[i] = load.is_new ? 0.0f : as_type<float>(saved[layout.scores + i]);
  to += kPrHistory * num_columns;
  for (int i = thread_id; i < load.num_rows * num_columns; i += threads)
    to[i] = chunk[(load.from_row + long(i / num_columns)) *  // NOLINT
                      load.stride +
                  i % num_columns];
  if (thread_id != 0) return;
  b_begins[load.index] = load.to_row;
  b_begins[load.index + 1] = load.to_row + kPrHistory + load.num_rows;
  Frame frame = {0, 0, 0, 0};
  for (int t = 0; t < kPrSaved; ++t) {
    frame.first_state += frame.num_states;
    frame.first_arc += frame.num_arcs;
    frame.num_states = load.num_states[t];
    frame.num_arcs = load.num_arcs[t];
    seq.frames[t] = frame;
  }
  infos += load.index * kPrNumInfos;
  for (int i = 0; i < kPrNumInfos; ++i) infos[i] = 0;
  for (int i = 0; i < 2; ++i) {
    infos[kPrBest + i] = kOrderedMinusInfinity;
    infos[kPrBeam + i] = load.beam;
  }
  infos[kPrFirstFrame] = load.first_frame;
  infos[kPrIsNew] = load.is_new;
  if (load.is_new) {
    seq.active[0] = Active{0, 0, 0, leaving_begins[0]};
    seq.num_kept[0] = 0;
    seq.frames[kPrHistory] =
        Frame{0, 1, 0, leaving_begins[1] - leaving_begins[0]};
  } else {
    infos[kPrStates] = load.num_states[load.first_frame];
  }
}

// Returns the window that the chunk prunes.  No later chunk changes the lattice
// before the window's frame `next`.
inline Window FrozenWindow(Sequence seq) {
  const int begin = Get(seq.infos + kPrFirstFrame), end = seq.num_rows - 1;
  return Window{begin, end, PrunedChunkNext(begin, end),
                Get(seq.infos + kPrIsNew) == 0};
}
// Returns the frames from FrozenWindow().next on, including the frame of the
// final state.  The next chunk may change the part of the lattice that belongs
// to these frames.
inline Window LiveWindow(Sequence seq) {
  const Window frozen = FrozenWindow(seq);
  return Window{frozen.next, frozen.end + 1, frozen.end + 1, true};
}

// If the chunk has no frames, looks for arcs with label -1.  For other chunks,
// FindFirsts() does this.
inline void FindFinalArcs(Sequence seq, Team team) {
  if (seq.num_rows != kPrHistory + 1) return;
  const Frame frame = seq.frames[kPrHistory];
  for (int j = team.index * kSimdWidth + team.lane; j < frame.num_states;
       j += team.size * kSimdWidth) {
    const Active state = seq.active[StateAt(seq, frame.first_state + j)];
    FindFinalArc(seq, state.graph_arc, seq.leaving_begins[state.state + 1]);
  }
}

// Visits the arcs of the row that follows a chunk's last frame.  Arcs with a
// finite score enter the final state, and all other arcs are dropped.
struct FinalExpansion {
  Sequence seq;
  int t;
  int lane;
  threadgroup atomic_int *num_kept;  // kept arcs of each lane's state
  int first_arc;
  bool is_partial;

  void Before(bool, int, Active) {
    atomic_store_explicit(num_kept + lane, 0, memory_order_relaxed);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  void Visit(Step step) {
    if (!step.exists) return;
    const float score = ScoreOf(seq, t, seq.arcs[step.graph_arc], is_partial);
    const bool is_finite = fabs(score) < INFINITY;
    seq.next_states[ArcAt(seq, first_arc + step.index)] = is_finite ? 0 : -1;
    if (is_finite)
      atomic_fetch_add_explicit(num_kept + step.lane, 1, memory_order_relaxed);
  }
  void After(bool has_state, int slot, Active) {
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (has_state)
      seq.num_kept[slot] =
          atomic_load_explicit(num_kept + lane, memory_order_relaxed);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
};

inline void ExpandFinal(Sequence seq, Team team, int t) {
  const Frame frame = seq.frames[t];
  FinalExpansion visitor = {
      seq, t, team.lane, team.sums, frame.first_arc, IsPartial(seq, t)};
  ForArcs<false>(seq, team, frame, visitor);
  if (!team.IsFirst()) return;
  const int slot = StateAt(seq, frame.first_state + frame.num_states);
  seq.active[slot] = Active{seq.first_state + seq.num_states - 1, 0, 0, 0};
  seq.num_kept[slot] = 0;
  seq.frames[t + 1] =
      Frame{slot, 1, ArcAt(seq, frame.first_arc + frame.num_arcs), 0};
}

// Does one step of a frame of the chunk, or of the row after the chunk.
inline void DoFrameStep(Sequence seq, Team team, int phase, int t) {
  const int last = seq.num_rows - 1;
  if (phase == kPrStart) {
    FindFinalArcs(seq, team);
  } else if (phase == kPrExpand) {
    if (t > kPrHistory && t <= last) Resolve<kPrStepUnroll>(seq, team, t - 1);
    if (t < last) Expand<kPrStepUnroll>(seq, team, t);
    if (t == last) ExpandFinal(seq, team, t);
  } else if (t >= last) {
    return;
  } else if (phase == kPrInsert) {
    Insert<kPrStepUnroll>(seq, team, t);
    ForgetStates(seq, team, t);
  } else if (phase == kPrFindFirsts) {
    FindFirsts<kPrStepUnroll>(seq, team, t);
  } else if (phase == kPrMakeStates) {
    MakeStates(seq, team, t, 0);
  }
}

// Does one of the steps that follow the steps of the frames: step 0, then a
// pruning step for each frame, then the steps of DoNumberingStep() for each of
// the two windows.
inline void DoPruningStep(Sequence seq, Team team, int step) {
  const int most_frames = seq.params->num_rows - 1;
  const Window frozen = FrozenWindow(seq);
  if (step == 0) {
    // Empties the table for the next chunk.
    ForgetStates(seq, team, frozen.end);
    StartBackward(seq, team, frozen.end);
    return;
  }
  if (step <= most_frames) {
    if (frozen.end - step >= frozen.begin)
      PruneFrame(seq, team, frozen.end - step, frozen.begin);
    return;
  }
  step -= most_frames + 1;
  const bool is_live = step >= kPrNumberingSteps;
  if (step == kPrNumberingSteps && team.IsFirst()) {
    Set(seq.infos + kPrFrozenStates, Get(seq.infos + kPrStates));
    Set(seq.infos + kPrFrozenArcs, Get(seq.infos + kPrArcs));
  }
  // One call, because the compiler inlines each call.
  DoNumberingStep(seq, team, is_live ? LiveWindow(seq) : frozen,
                  step % kPrNumberingSteps);
}

// This kernel declares no limit on the threads of a threadgroup, for the reason
// given at search_pruned.
kernel void search_stream(K2_PRUNED_ARGUMENTS,
                          uint group [[threadgroup_position_in_grid]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint num_simdgroups [[simdgroups_per_threadgroup]]) {
  const Buffers buffers = K2_PRUNED_BUFFERS;
  threadgroup atomic_int sums[2 * kPrMostThreads];
  threadgroup int queues[2 * kPrMostThreads];
  const Sequence seq = GetSequence(buffers, int(group), int(group));
  const Team team = TeamOf(int(simdgroup), int(num_simdgroups), int(simdgroup),
                           int(lane), sums, queues);
  DoFrameStep(seq, team, kPrStart, 0);
  Barrier();
  for (int t = kPrHistory; t < seq.num_rows; ++t) {
    for (int phase = kPrExpand; phase <= kPrMakeStates; ++phase) {
      DoFrameStep(seq, team, phase, t);
      Barrier();
    }
  }
  for (int step = 0; step < PrunedChunkSteps(params.num_rows); ++step) {
    DoPruningStep(seq, team, step);
    Barrier();
  }
}

[[max_total_threads_per_threadgroup(kPrThreads)]]
kernel void step_stream(K2_PRUNED_ARGUMENTS,
                        constant PrunedStep &step [[buffer(kPrunedDispatch)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint num_simdgroups [[simdgroups_per_threadgroup]]) {
  const Buffers buffers = K2_PRUNED_BUFFERS;
  threadgroup atomic_int sums[2 * kPrThreads];
  threadgroup int queues[2 * kPrThreads];
  const int slot = int(group) / step.groups, number = int(group) % step.groups;
  const Sequence seq = GetSequence(buffers, slot, slot);
  const Team team = TeamOf(int(number * num_simdgroups + simdgroup),
                           int(step.groups * num_simdgroups), int(simdgroup),
                           int(lane), sums, queues);
  if (step.phase != kPrNoPhase)
    DoFrameStep(seq, team, step.phase, step.t);
  else
    DoPruningStep(seq, team, step.window_step);
}

struct EndsOfStream {
  int final_state;
  bool IsFinal(OutArc arc) const { return arc.dest == final_state; }
};

// There are kPrWideGroups threadgroups for each sequence.
[[max_total_threads_per_threadgroup(kPrWideThreads)]]
kernel void describe_stream(K2_PRUNED_ARGUMENTS,
                            uint group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]]) {
  const Buffers buffers = K2_PRUNED_BUFFERS;
  const int index = int(group) / kPrWideGroups;
  const Sequence seq = GetSequence(buffers, index, index);
  if (Get(seq.infos + kPrError) != 0) return;
  const int first =
                int(group) % kPrWideGroups * kPrWideThreads + int(thread_index),
            step = kPrWideGroups * kPrWideThreads,
            frozen_arcs = Get(seq.infos + kPrFrozenArcs);
  const EndsOfStream ends = {Get(seq.infos + kPrStates) - 1};
  DescribeArcs(seq, ends, 0, frozen_arcs, first, step,
               Description{seq.infos + kPrNotProperties, seq.infos + kPrEntered,
                           seq.infos + kPrLeft});
  DescribeArcs(
      seq, ends, frozen_arcs, Get(seq.infos + kPrArcs), first, step,
      Description{seq.infos + kPrLiveNotProperties, seq.infos + kPrLiveEntered,
                  seq.infos + kPrLiveLeft});
  if (first != 0) return;
  const Window window = FrozenWindow(seq);
  for (int i = 0; i < kPrSaved; ++i) {
    const int t = window.end - kPrHistory + i;
    if (t < window.next) continue;
    Set(seq.infos + kPrFrameSizes + 2 * i, seq.frames[t].num_states);
    Set(seq.infos + kPrFrameSizes + 2 * i + 1, seq.frames[t].num_arcs);
  }
}

[[max_total_threads_per_threadgroup(kPrWideThreads)]]
kernel void save_stream(device int *rings [[buffer(kStreamRings)]],
                        device const int *lattice [[buffer(kStreamLattice)]],
                        device const float *scores [[buffer(kStreamScores)]],
                        constant PrunedParams &params [[buffer(kStreamParams)]],
                        device int *saved [[buffer(kStreamSaved)]],
                        device OutArc *old_arcs [[buffer(kStreamOldArcs)]],
                        device int *old_times [[buffer(kStreamOldTimes)]],
                        constant PrunedSave &save [[buffer(kStreamSave)]],
                        uint thread_index [[thread_position_in_grid]],
                        uint num_threads [[threads_per_grid]]) {
  const int thread_id = int(thread_index), threads = int(num_threads),
            num_states = save.num_states, num_arcs = save.num_arcs,
            num_columns = params.num_columns;
  const Sequence seq = RingsOf(rings, save.index, &params);
  device const OutArc *out = reinterpret_cast<device const OutArc *>(
      lattice + LatticeBegin(save.index, &params));
  const Frame next = seq.frames[save.next];
  const SavedLayout layout = LayoutOfSaved(num_states, num_arcs, num_columns);
  for (int i = thread_id; i < num_states; i += threads) {
    const int slot = StateAt(seq, next.first_state + i);
    const Active state = seq.active[slot];
    device int *to = saved + 4l * i;
    to[0] = state.state;
    to[1] = state.forward;
    to[2] = state.first_arc;
    to[3] = state.graph_arc;
    saved[layout.num_kept + i] = seq.num_kept[slot];
    saved[layout.numbers + i] = seq.numbers[slot] + save.base;
  }
  for (int i = thread_id; i < num_arcs; i += threads)
    saved[layout.next_states + i] =
        seq.next_states[ArcAt(seq, next.first_arc + i)];
  device const float *from =
      scores +
      long(save.first_row + save.end - kPrHistory) * num_columns;  // NOLINT
  for (int i = thread_id; i < kPrHistory * num_columns; i += threads)
    saved[layout.scores + i] = as_type<int>(from[i]);
  for (int i = thread_id; i < save.num_out_arcs; i += threads) {
    OutArc arc = out[i];
    arc.src += save.base;
    arc.dest += save.base;
    old_arcs[i] = arc;
  }
  for (int t = save.begin + (save.is_new ? 0 : 1); t <= save.next; ++t) {
    const Frame frame = seq.frames[t];
    for (int j = thread_id; j < frame.num_states; j += threads) {
      const int slot = StateAt(seq, frame.first_state + j);
      if (seq.num_kept[slot] >= 0)
        old_times[seq.numbers[slot] + save.base] = save.time + t;
    }
  }
}

// old_arcs     the arcs of the lattice that earlier chunks saved; their states
//              already have their numbers in the whole lattice
// lattice      has the other arcs; `base` must be added to the states of these
//              arcs
// row_splits2, row_ids1, row_ids2   [states + 1], [states], [arcs] of all
//              streams, get the row splits and row ids of the lattices
// out_arcs     [arcs], gets the arcs of the lattices
// arc_map      [arcs], gets, for each arc, the graph's arc from which it was
//              made, or -1
[[max_total_threads_per_threadgroup(kPrWideThreads)]]
kernel void emit_stream(device const OutArc *old_arcs
                        [[buffer(kStreamOldArcs)]],
                        device const int *lattice [[buffer(kStreamLattice)]],
                        constant PrunedParams &params [[buffer(kStreamParams)]],
                        device const Arc *arcs [[buffer(kStreamArcs)]],
                        device int *row_splits2 [[buffer(kStreamRowSplits2)]],
                        device int *row_ids1 [[buffer(kStreamRowIds1)]],
                        device int *row_ids2 [[buffer(kStreamRowIds2)]],
                        device Arc *out_arcs [[buffer(kStreamOutArcs)]],
                        device int *arc_map [[buffer(kStreamArcMap)]],
                        constant PrunedStreamEmit &emit [[buffer(kStreamEmit)]],
                        uint thread_index [[thread_position_in_grid]]) {
  const int i = int(thread_index), num_old = emit.num_old_arcs;
  device const OutArc *out = reinterpret_cast<device const OutArc *>(
      lattice + LatticeBegin(emit.index, &params));
  if (i <= emit.num_states) {
    // Finds the first arc that leaves this state or a later state.
    int low = 0, high = emit.num_arcs;
    while (low < high) {
      const int middle = low + (high - low) / 2,
                src = middle < num_old ? old_arcs[middle].src
                                       : out[middle - num_old].src + emit.base;
      if (src < i)
        low = middle + 1;
      else
        high = middle;
    }
    row_splits2[emit.first_state + i] = emit.first_arc + low;
    if (i < emit.num_states) row_ids1[emit.first_state + i] = emit.index;
  }
  if (i >= emit.num_arcs) return;
  OutArc arc;
  if (i < num_old) {
    arc = old_arcs[i];
  } else {
    arc = out[i - num_old];
    arc.src += emit.base;
    arc.dest += emit.base;
  }
  const int label = arcs[arc.graph_arc].label, at = emit.first_arc + i;
  const bool is_final = arc.dest == emit.num_states - 1;
  row_ids2[at] = emit.first_state + arc.src;
  out_arcs[at] = Arc{arc.src, arc.dest, is_final ? -1 : label, arc.score};
  arc_map[at] = is_final && label != -1 ? -1 : arc.graph_arc;
}
