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
#include "k2/csrc/mps/kernels/pruned_window.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// intersect_dense_pruned on the GPU.  The host does nothing between frames.
// The lattice is bit for bit identical to the lattice that
// MultiGraphDenseIntersectPruned makes on the CPU, with states and arcs in the
// same order.
//
//   start_pruned     empties the tables
//   search_pruned    goes through the frames and prunes them, with one
//                    threadgroup for each sequence
//   step_pruned      does one step of search_pruned, with several threadgroups
//                    for each sequence
//   describe_pruned  counts what the lattice's properties depend on
//   emit_pruned      writes the lattice
//
// A sequence's active states, and the arcs that leave these states, are in
// rings, which have room for a window of kPrWindow frames and for some more
// frames.  Before emit_pruned, the host waits for the size of the lattice.

// Empties the params.num_pairs pairs of the tables, and sets the
// params.num_infos elements of `infos` to 0.
[[max_total_threads_per_threadgroup(kPrWideThreads)]]
kernel void start_pruned(device atomic_int *table [[buffer(kPrunedTable)]],
                         device int *infos [[buffer(kPrunedInfos)]],
                         constant PrunedStartParams &params
                         [[buffer(kPrunedDispatch)]],
                         uint thread_index [[thread_position_in_grid]],
                         uint num_threads [[threads_per_grid]]) {
  for (uint i = thread_index; i < uint(params.num_pairs); i += num_threads) {
    Set(table + 2l * i, kNone);
    Set(table + 2l * i + 1, kOrderedMinusInfinity);
  }
  for (uint i = thread_index; i < uint(params.num_infos); i += num_threads)
    infos[i] = 0;
}

// Prunes a window, and writes the window's part of the lattice.
inline void DoWindow(Sequence seq, Team team, Window window) {
  StartBackward(seq, team, window.end);
  Barrier();
  for (int t = window.end - 1; t >= window.begin; --t) {
    PruneFrame(seq, team, t, window.begin);
    Barrier();
  }
  for (int step = 0; step < kPrNumberingSteps; ++step) {
    DoNumberingStep(seq, team, window, step);
    Barrier();
  }
}

// There is a threadgroup for each of up to params.at_once sequences.  A
// threadgroup has at most kPrMostThreads threads; more threads are faster.  If
// the kernel declared this limit, Metal's compiler could not give a thread all
// the registers that the thread needs.  If the first window of a dispatch is
// not 0, the dispatch continues from what an earlier dispatch left in memory.
kernel void search_pruned(K2_PRUNED_ARGUMENTS,
                          constant PrunedPart &part [[buffer(kPrunedDispatch)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint num_simdgroups [[simdgroups_per_threadgroup]]) {
  const Buffers buffers = K2_PRUNED_BUFFERS;
  threadgroup atomic_int sums[2 * kPrMostThreads];
  threadgroup int queues[2 * kPrMostThreads];
  const Sequence seq =
      GetSequence(buffers, part.first_seq + int(group), int(group));
  const Team team = TeamOf(int(simdgroup), int(num_simdgroups), int(simdgroup),
                           int(lane), sums, queues);
  int t = 0;
  if (part.first_window == 0)
    StartSequence(seq, team);
  else
    t = WindowOf(part.first_window - 1, params.num_rows).end;
  Barrier();
  for (int w = part.first_window; w < part.last_window; ++w) {
    const Window window = WindowOf(w, params.num_rows);
    for (; t < window.end; ++t) {
      Expand<kPrSearchUnroll>(seq, team, t);
      Barrier();
      Insert<kPrSearchUnroll>(seq, team, t);
      ForgetStates(seq, team, t);
      Barrier();
      FindFirsts<kPrSearchUnroll>(seq, team, t);
      Barrier();
      MakeStates(seq, team, t, window.begin);
      Barrier();
      Resolve<kPrSearchUnroll>(seq, team, t);
    }
    DoWindow(seq, team, window);
  }
}

// Does one of the PrunedWindowSteps() that prune a window.
inline void DoWindowStep(Sequence seq, Team team, Window window, int step) {
  const int num_frames = window.end - window.begin;
  if (step == 0)
    StartBackward(seq, team, window.end);
  else if (step <= num_frames)
    PruneFrame(seq, team, window.end - step, window.begin);
  else
    DoNumberingStep(seq, team, window, step - num_frames - 1);
}

inline void DoPhase(Sequence seq, Team team, constant PrunedStep &step) {
  const int t = step.t;
  if (step.phase == kPrStart) {
    StartSequence(seq, team);
  } else if (step.phase == kPrExpand) {
    Expand<kPrStepUnroll>(seq, team, t);
  } else if (step.phase == kPrInsert) {
    Insert<kPrStepUnroll>(seq, team, t);
    ForgetStates(seq, team, t);
  } else if (step.phase == kPrFindFirsts) {
    FindFirsts<kPrStepUnroll>(seq, team, t);
  } else if (step.phase == kPrMakeStates) {
    MakeStates(seq, team, t, step.first_live);
  } else if (step.phase == kPrResolve) {
    Resolve<kPrStepUnroll>(seq, team, t - 1);
  }
}

// Does a step of a frame and, at the same time, a step of the window that is
// being pruned.  For each sequence there are step.num_teams teams of
// step.groups threadgroups.  The first team does step.phase.  During kPrExpand,
// another team resolves the arcs of the previous frame.  The last team works on
// the window.
[[max_total_threads_per_threadgroup(kPrThreads)]]
kernel void step_pruned(K2_PRUNED_ARGUMENTS,
                        constant PrunedStep &step [[buffer(kPrunedDispatch)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint num_simdgroups [[simdgroups_per_threadgroup]]) {
  const Buffers buffers = K2_PRUNED_BUFFERS;
  threadgroup atomic_int sums[2 * kPrThreads];
  threadgroup int queues[2 * kPrThreads];
  const int groups = step.groups, of_all = int(group) / groups,
            number = int(group) % groups, slot = of_all / step.num_teams,
            team_number = of_all % step.num_teams;
  Sequence seq = GetSequence(buffers, step.first_seq + slot, slot);
  const Team team = TeamOf(int(number * num_simdgroups + simdgroup),
                           int(groups * num_simdgroups), int(simdgroup),
                           int(lane), sums, queues);
  if (step.window >= 0 && team_number + 1 == step.num_teams) {
    seq.counts += kPrMaxSimdgroups;
    DoWindowStep(seq, team, WindowOf(step.window, params.num_rows),
                 step.window_step);
  } else if (team_number == 0) {
    DoPhase(seq, team, step);
  } else {
    Resolve<kPrStepUnroll>(seq, team, step.t - 1);
  }
}

struct EndsOfBatch {
  int last_row;
  bool IsFinal(OutArc arc) const { return arc.t == last_row; }
};

// Returns the frame of a state of the lattice, as an index among the frames of
// all sequences.  Each sequence has params.num_rows + 1 frames.
inline int FrameOf(Sequence seq, int index, int state) {
  const int final_state = Get(seq.infos + kPrStates) - 1 +
                          Get(seq.infos + kPrExtraStates),
            t = state >= final_state ? seq.num_rows
                                     : Get(seq.entered + state) / 2;
  return index * (seq.params->num_rows + 1) + t;
}

// There are kPrWideGroups threadgroups for each sequence.
[[max_total_threads_per_threadgroup(kPrWideThreads)]]
kernel void describe_pruned(K2_PRUNED_ARGUMENTS,
                            uint group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]]) {
  const Buffers buffers = K2_PRUNED_BUFFERS;
  const int index = int(group) / kPrWideGroups;
  const Sequence seq = GetSequence(buffers, index, 0);
  if (Get(seq.infos + kPrError) != 0) return;
  const int first =
      int(group) % kPrWideGroups * kPrWideThreads + int(thread_index);
  DescribeArcs(seq, EndsOfBatch{seq.num_rows - 1}, 0, Get(seq.infos + kPrArcs),
               first, kPrWideGroups * kPrWideThreads,
               Description{seq.infos + kPrNotProperties, seq.infos + kPrEntered,
                           seq.infos + kPrLeft});
}

// begins       [2][num_seqs + 1], the number of states before each sequence in
//              the lattice, then the number of arcs before each sequence
// row_splits2, row_ids1, row_ids2   [states + 1], [states], [arcs], get the row
//              splits and row ids of the lattice
// out_arcs     [arcs], gets the arcs of the lattice
// arc_map_a    [arcs], gets, for each arc, the graph's arc from which it was
//              made, or -1
// arc_map_b    [arcs], gets, for each arc, the element of b_scores from which
//              it was made
// frame_states, frame_arcs   [frames + 1], are written; see
//              k2/csrc/mps/lattice.h
[[max_total_threads_per_threadgroup(kPrWideThreads)]]
kernel void emit_pruned(K2_PRUNED_ARGUMENTS,
                        device const int *begins [[buffer(kPrunedBegins)]],
                        device int *row_splits2 [[buffer(kPrunedRowSplits2)]],
                        device int *row_ids1 [[buffer(kPrunedRowIds1)]],
                        device int *row_ids2 [[buffer(kPrunedRowIds2)]],
                        device Arc *out_arcs [[buffer(kPrunedOutArcs)]],
                        device int *arc_map_a [[buffer(kPrunedArcMapA)]],
                        device int *arc_map_b [[buffer(kPrunedArcMapB)]],
                        device int *frame_states [[buffer(kPrunedFrameStates)]],
                        device int *frame_arcs [[buffer(kPrunedFrameArcs)]],
                        constant PrunedEmitParams &sizes
                        [[buffer(kPrunedDispatch)]],
                        uint thread_index [[thread_position_in_grid]]) {
  const Buffers buffers = K2_PRUNED_BUFFERS;
  const int i = int(thread_index), num_seqs = params.num_seqs;
  device const int *arc_begins = begins + num_seqs + 1;
  if (i <= sizes.num_states) {
    int first_arc = sizes.num_arcs, frame = num_seqs * (params.num_rows + 1),
        frame_before = -1;
    if (i < sizes.num_states) {
      const int index = Find(begins, num_seqs, i), state = i - begins[index];
      const Sequence seq = GetSequence(buffers, index, 0);
      row_ids1[i] = index;
      // No arc leaves the last of the infos[kPrStates] states, or a final state
      // that no arc enters.  So out_begins is not read for these two states.
      first_arc = arc_begins[index] + (state < Get(seq.infos + kPrStates) - 1
                                           ? seq.out_begins[state]
                                           : Get(seq.infos + kPrArcs));
      frame = FrameOf(seq, index, state);
    }
    row_splits2[i] = first_arc;
    if (i > 0) {
      const int index = Find(begins, num_seqs, i - 1);
      const Sequence seq = GetSequence(buffers, index, 0);
      frame_before = FrameOf(seq, index, i - 1 - begins[index]);
    }
    for (int f = frame_before + 1; f <= frame; ++f) {
      frame_states[f] = i;
      frame_arcs[f] = first_arc;
    }
  }
  if (i >= sizes.num_arcs) return;
  const int index = Find(arc_begins, num_seqs, i);
  const Sequence seq = GetSequence(buffers, index, 0);
  const OutArc arc = seq.out[i - arc_begins[index]];
  const Arc graph_arc = arcs[arc.graph_arc];
  const bool is_final = arc.t == seq.num_rows - 1;
  row_ids2[i] = begins[index] + arc.src;
  out_arcs[i] = Arc{arc.src, arc.dest, is_final ? -1 : graph_arc.label,
                    ScoreOf(seq, arc.t, graph_arc, IsPartial(seq, arc.t))};
  arc_map_a[i] = is_final && graph_arc.label != -1 ? -1 : arc.graph_arc;
  // With allow_partial, a sequence may end with a label that has no scores.
  // Then arc_map_b gets the element of label -1.
  const bool has_scores = uint(graph_arc.label) + 1u < uint(params.num_columns);
  arc_map_b[i] = (b_begins[index] + arc.t) * params.num_columns +
                 (has_scores ? graph_arc.label + 1 : 0);
}
