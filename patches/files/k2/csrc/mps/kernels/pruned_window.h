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

#ifndef K2_CSRC_MPS_KERNELS_PRUNED_WINDOW_H_
#define K2_CSRC_MPS_KERNELS_PRUNED_WINDOW_H_

#include "k2/csrc/mps/kernels/pruned_frame.h"
#include "k2/csrc/mps/kernels/pruned_memory.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// For kernels only: prunes a window of frames, and adds states and arcs to the
// lattice, in steps with a barrier between them:
//
//   StartBackward  sets the backward scores of the frame after the window
//   PruneFrame     prunes a frame of the window; runs for the last frame first
//   CountKept, NumberStates, AddTotals   count and number the states and arcs
//                  that no later window prunes
//   Write          writes these arcs into the lattice

// A window: frames begin to end - 1.  Later windows do not change the frames
// before `next`.
struct Window {
  int begin, end, next;
  bool is_numbered;  // whether the states of frame `begin` have their numbers
                     // in the lattice
};

inline Window WindowOf(int index, int num_rows) {
  const int begin = PrunedWindowBegin(index),
            end = PrunedWindowEnd(index, num_rows);
  return Window{begin, end,
                end == num_rows ? num_rows : PrunedWindowBegin(index + 1),
                begin > 0};
}

inline void StartBackward(Sequence seq, Team team, int t) {
  const Frame frame = seq.frames[t];
  for (int j = team.index * kSimdWidth + team.lane; j < frame.num_states;
       j += team.size * kSimdWidth) {
    const int slot = StateAt(seq, frame.first_state + j);
    // The forward score is finite, because a score of -infinity is not over a
    // cutoff, and other scores that are not finite are errors.
    seq.backward[slot] = Ordered(-Unordered(seq.active[slot].forward));
  }
}

// A visitor that prunes the arcs and states of frame t.
struct Pruning {
  Sequence seq;
  int t;
  int lane;
  // For each lane's state: Ordered() of the best score of the state's arcs, and
  // the number of the state's kept arcs.
  threadgroup atomic_int *best, *num_kept;
  // Where the frame's arcs and the next frame's states begin in the rings.
  int first_arc, next_state;
  bool is_partial, is_first;
  bool is_wrong;

  void Before(bool, int, Active) {
    atomic_store_explicit(best + lane, kOrderedMinusInfinity,
                          memory_order_relaxed);
    atomic_store_explicit(num_kept + lane, 0, memory_order_relaxed);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }

  void Visit(Step step) {
    if (!step.exists) return;
    const int slot = ArcAt(seq, first_arc + step.index),
              dest = seq.next_states[slot];
    if (dest < 0) return;
    const float of_dest =
        Unordered(seq.backward[StateAt(seq, next_state + dest)]);
    const float score =
        ScoreOf(seq, t, seq.arcs[step.graph_arc], is_partial) + of_dest;
    // In the frames of a window, the relative error of rounding is below 1e-5.
    if (!(score <= 2.0f - step.forward + 1e-5f * fabs(of_dest)))
      is_wrong = true;
    if (score + step.forward >= -seq.params->output_beam) {
      atomic_fetch_max_explicit(best + step.lane, Ordered(score),
                                memory_order_relaxed);
      atomic_fetch_add_explicit(num_kept + step.lane, 1, memory_order_relaxed);
    } else {
      seq.next_states[slot] = -1;
    }
  }

  void After(bool has_state, int slot, Active state) {
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (has_state) {
      int score = atomic_load_explicit(best + lane, memory_order_relaxed);
      const int kept =
          atomic_load_explicit(num_kept + lane, memory_order_relaxed);
      if (state.state == seq.first_state + seq.num_states - 1)
        score = Ordered(-Unordered(state.forward));
      seq.backward[slot] = score;
      // This window does not prune the states of its first frame, but an
      // earlier window may have pruned some of these states.
      const bool is_kept =
          is_first ? seq.num_kept[slot] >= 0 : score != kOrderedMinusInfinity;
      seq.num_kept[slot] = is_kept ? kept : -1;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
};

// Prunes frame t of the window that begins with frame `begin`.
inline void PruneFrame(Sequence seq, Team team, int t, int begin) {
  const Frame frame = seq.frames[t];
  Pruning visitor = {seq,
                     t,
                     team.lane,
                     team.sums,
                     team.sums + kSimdWidth,
                     frame.first_arc,
                     seq.frames[t + 1].first_state,
                     IsPartial(seq, t),
                     t == begin,
                     false};
  ForArcs<true>(seq, team, frame, visitor);
  if (visitor.is_wrong) Fail(seq, kPrScores);
}

// States `first` to first + count - 1 of the ring.  When a window is done, the
// kept states among them have numbers in the lattice.  An earlier window has
// numbered the first `num_old` of the states.  Write() writes the arcs that
// leave the first `num_sources` of the states.
struct Numbered {
  int first, count, num_old, num_sources;
};

inline Numbered NumberedBy(Sequence seq, Window window) {
  const Frame begin = seq.frames[window.begin], next = seq.frames[window.next];
  const int size = seq.params->max_states,
            num_sources = InUse(begin.first_state, next.first_state, size);
  return Numbered{begin.first_state, num_sources + next.num_states,
                  window.is_numbered ? begin.num_states : 0, num_sources};
}

inline void CountKept(Sequence seq, Team team, Window window) {
  const Numbered states = NumberedBy(seq, window);
  const Share mine = ShareOf(team, states.count);
  int num_states = 0, num_arcs = 0;
  for (int j = mine.begin + team.lane; j < mine.end; j += kSimdWidth) {
    const int kept = seq.num_kept[StateAt(seq, states.first + j)];
    if (kept < 0) continue;
    num_states += j >= states.num_old ? 1 : 0;
    num_arcs += j < states.num_sources ? kept : 0;
  }
  num_states = simd_sum(num_states);
  num_arcs = simd_sum(num_arcs);
  if (team.lane == 0) seq.counts[team.index] = int2(num_states, num_arcs);
}

inline void NumberStates(Sequence seq, Team team, Window window) {
  const Numbered states = NumberedBy(seq, window);
  const Share mine = ShareOf(team, states.count);
  const Sums sums = SumsOf(seq, team);
  const int states_before = Get(seq.infos + kPrStates),
            arcs_before = Get(seq.infos + kPrArcs);
  if (states_before + sums.states > seq.params->max_out_states ||
      arcs_before + sums.arcs > seq.params->max_out_arcs)
    return;
  int number = states_before + sums.states_before,
      first_arc = arcs_before + sums.arcs_before;
  for (int begin = mine.begin; begin < mine.end; begin += kSimdWidth) {
    const int j = begin + team.lane;
    const bool exists = j < mine.end;
    const int slot = StateAt(seq, states.first + (exists ? j : 0)),
              kept = exists ? seq.num_kept[slot] : -1,
              is_new = kept >= 0 && j >= states.num_old ? 1 : 0;
    const bool has_arcs = kept >= 0 && j < states.num_sources;
    const int num_arcs = has_arcs ? kept : 0,
              arc = first_arc + Exclusive(num_arcs);
    const int new_number = number + Exclusive(is_new);
    if (is_new) {
      seq.numbers[slot] = new_number;
      Set(seq.entered + new_number, 0);
    }
    if (has_arcs) seq.out_begins[is_new ? new_number : seq.numbers[slot]] = arc;
    number += simd_sum(is_new);
    first_arc += simd_sum(num_arcs);
  }
}

inline void AddTotals(Sequence seq, Team team) {
  if (team.index != 0) return;
  const Sums sums = SumsOf(seq, team);
  if (team.lane != 0) return;
  const int states = Get(seq.infos + kPrStates) + sums.states,
            num_arcs = Get(seq.infos + kPrArcs) + sums.arcs;
  Set(seq.infos + kPrStates, states);
  Set(seq.infos + kPrArcs, num_arcs);
  if (states > seq.params->max_out_states ||
      num_arcs > seq.params->max_out_arcs)
    Fail(seq, kPrSmallOutput);
}

// A visitor that writes the arcs of frame t into the lattice.
struct Writing {
  Sequence seq;
  int t;
  int lane;
  int first_arc, next_state;  // as in Pruning
  bool is_partial;
  int source;    // the number of this lane's state in the lattice
  int position;  // where the next arc goes in the lattice

  void Before(bool has_state, int slot, Active) {
    const bool is_kept = has_state && seq.num_kept[slot] >= 0;
    source = is_kept ? seq.numbers[slot] : -1;
    const uint bits = Ballot(is_kept);
    const int begin = is_kept ? seq.out_begins[source] : 0;
    position = simd_shuffle(
        begin, ushort(bits != 0 ? static_cast<int>(ctz(bits)) : 0));
    if (is_kept) Set(seq.entered + source, 2 * t);
  }

  void Visit(Step step) {
    const int dest =
        step.exists ? seq.next_states[ArcAt(seq, first_arc + step.index)] : -1;
    const uint bits = Ballot(dest >= 0);
    const int from = simd_shuffle(source, ushort(step.lane));
    if (dest >= 0) {
      OutArc arc;
      arc.src = from;
      arc.dest = seq.numbers[StateAt(seq, next_state + dest)];
      arc.graph_arc = step.graph_arc;
      if (seq.params->streaming)
        arc.score = ScoreOf(seq, t, seq.arcs[step.graph_arc], is_partial);
      else
        arc.t = t;
      seq.out[position + static_cast<int>(popcount(Below(bits, lane)))] = arc;
    }
    position += static_cast<int>(popcount(bits));
  }

  void After(bool, int, Active) {}
};

inline void Write(Sequence seq, Team team, Window window) {
  if ((Get(seq.infos + kPrError) & kPrSmallOutput) != 0) return;
  // The team writes this many frames at once.  In a large team, at least 8
  // simdgroups work on each frame.
  const int at_once =
      max(min(team.size / 8, window.next - window.begin), 1);  // NOLINT
  Team part = team;
  part.size = team.size / at_once;
  part.index = team.index / at_once;
  if (part.index >= part.size) return;
  for (int t = window.begin + team.index % at_once; t < window.next;
       t += at_once) {
    const Frame frame = seq.frames[t];
    Writing visitor = {seq,
                       t,
                       team.lane,
                       frame.first_arc,
                       seq.frames[t + 1].first_state,
                       IsPartial(seq, t),
                       -1,
                       0};
    ForArcs<true>(seq, part, frame, visitor);
  }
}

// Does one of the kPrNumberingSteps steps that follow the pruning of a window.
inline void DoNumberingStep(Sequence seq, Team team, Window window, int step) {
  if (step == 0)
    CountKept(seq, team, window);
  else if (step == 1)
    NumberStates(seq, team, window);
  else if (step == 2)
    AddTotals(seq, team);
  else
    Write(seq, team, window);
}

#endif  // K2_CSRC_MPS_KERNELS_PRUNED_WINDOW_H_
