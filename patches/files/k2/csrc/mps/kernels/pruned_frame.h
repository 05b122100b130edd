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

#ifndef K2_CSRC_MPS_KERNELS_PRUNED_FRAME_H_
#define K2_CSRC_MPS_KERNELS_PRUNED_FRAME_H_

#include "k2/csrc/mps/kernels/pruned_memory.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// For kernels only: one frame of intersect_dense_pruned.  A frame has active
// states, which are states of the graph.  The frame's arcs are the graph's arcs
// that leave these states.  An arc over the cutoff, which is the best score
// minus the beam, makes the state that it enters active in the next frame.  A
// frame takes these steps, with a barrier between them:
//
//   Expand         scores the arcs, and finds the best score and the beam.
//                  Writes `endings`, infos[kPrBest] and infos[kPrBeam]
//   Insert         finds the arcs over the cutoff and, for each state that such
//                  an arc enters, the first of these arcs and the best score.
//                  Writes over_cutoff and the table
//   ForgetStates   removes the frame's own states from the table of the
//                  previous frame.  Runs in the same step as Insert()
//   FindFirsts     marks each arc that is, by the table, the first arc into a
//                  state, and counts the marked arcs.  Writes is_first and
//                  counts
//   MakeStates     makes the next frame's states, in the order of their first
//                  arcs.  Writes `active` and `frames` for the next frame, and
//                  puts the numbers of the states into the table
//   Resolve        finds which state of the next frame each arc enters.  Writes
//                  next_states, which the pruning of the window reads.  No
//                  barrier is needed between this step and Expand() of the next
//                  frame
//
// All simdgroups of a team work on each step.  A thread processes kUnroll arcs
// at once.  The only atomic operations are maxima and minima, so the results do
// not depend on the order in which simdgroups run.

// Sets infos[kPrHasFinal] if an arc with an index from `begin` to end - 1 has
// label -1.  These arcs leave a state of the last frame.
inline void FindFinalArc(Sequence seq, int begin, int end) {
  if (!seq.params->allow_partial) return;
  for (int i = begin; i < end; ++i)
    if (seq.arcs[i].label == -1) Set(seq.infos + kPrHasFinal, 1);
}

inline void StartSequence(Sequence seq, Team team) {
  if (!team.IsFirst()) return;
  const int first = seq.first_state, num_states = seq.num_states > 0 ? 1 : 0;
  int num_arcs = 0;
  if (num_states > 0 && seq.num_rows > 0) {
    const int begin = seq.leaving_begins[first];
    num_arcs = seq.leaving_begins[first + 1] - begin;
    seq.active[0] = Active{first, 0, 0, begin};
    seq.num_kept[0] = 0;
    if (seq.num_rows == 1) FindFinalArc(seq, begin, begin + num_arcs);
  }
  if (num_arcs >= seq.params->max_arcs) {
    Fail(seq, kPrSmallRings);
    num_arcs = 0;
  }
  seq.frames[0] = Frame{0, num_states, 0, num_arcs};
  for (int i = 0; i < 2; ++i) {
    Set(seq.infos + kPrBest + i, kOrderedMinusInfinity);
    Set(seq.infos + kPrBeam + i, as_type<int>(seq.params->search_beam));
  }
}

// The part of an array on which a simdgroup works: elements `begin` to end - 1.
struct Share {
  int begin, end;
};

inline Share ShareOf(Team team, int size) {
  const int each = (size + team.size - 1) / team.size,
            begin = min(team.index * each, size);
  return Share{begin, min(begin + each, size)};  // NOLINT
}

// Returns the number of words that have a bit for each of num_arcs arcs.
inline int NumWords(int num_arcs) {
  return (num_arcs + kSimdWidth - 1) / kSimdWidth;
}

template <int kUnroll>
inline void Expand(Sequence seq, Team team, int t) {
  const Frame frame = seq.frames[t];
  const bool is_partial = IsPartial(seq, t);
  const int final_state = seq.first_state + seq.num_states - 1;
  const Share words = ShareOf(team, NumWords(frame.num_arcs));
  const int end = min(words.end * kSimdWidth, frame.num_arcs);  // NOLINT
  int at = words.begin * kSimdWidth, best = kOrderedMinusInfinity;
  bool is_nan = false;
  // The state that arc `at` leaves.
  int first = at < end ? FirstFrom(seq, team, frame, at + 1) - 1 : 0;
  for (; at < end; first += kSimdWidth) {
    const Sources sources =
        SourcesFrom(seq, team, frame, first, kNone, kSimdWidth);
    const int until = min(end, sources.end);  // NOLINT
    for (; at < until; at += kUnroll * kSimdWidth) {
      Step steps[kUnroll];
      Arc arcs[kUnroll];
      float scores[kUnroll];
      // An arc that does not exist is replaced by an arc that exists, so that
      // no lane branches.
      for (int k = 0; k < kUnroll; ++k) {
        const int i = at + k * kSimdWidth + team.lane;
        steps[k] = StepOf(sources, min(i, until - 1) - sources.base,  // NOLINT
                          i < until);
        arcs[k] = seq.arcs[steps[k].graph_arc];
      }
      for (int k = 0; k < kUnroll; ++k)
        scores[k] = steps[k].forward + ScoreOf(seq, t, arcs[k], is_partial);
      for (int k = 0; k < kUnroll; ++k) {
        best = max(best, Ordered(scores[k]));
        is_nan = is_nan || !(scores[k] < INFINITY);
        if (!steps[k].exists) continue;
        const int slot = ArcAt(seq, frame.first_arc + steps[k].index);
        seq.endings[slot] = Ending{
            is_partial ? final_state : seq.first_state + arcs[k].dest_state,
            scores[k]};
      }
    }
    at = until;
  }
  best = simd_max(best);
  if (team.lane == 0 && best != kOrderedMinusInfinity)
    atomic_fetch_max_explicit(seq.infos + kPrBest + (t & 1), best,
                              memory_order_relaxed);
  if (is_nan) Fail(seq, kPrNan);
  if (team.IsFirst()) {
    // The end of a chunk is not the end of the stream.
    const int num_rows = seq.params->streaming ? kNone : seq.num_rows;
    const float before = as_type<float>(Get(seq.infos + kPrBeam + (t & 1))),
                beam = NextBeam(before, frame.num_states, t, num_rows,
                                *seq.params);
    if (!(beam >= PrunedSmallestBeam())) Fail(seq, kPrBeamRange);
    Set(seq.infos + kPrBeam + ((t + 1) & 1), as_type<int>(beam));
  }
}

template <int kUnroll>
inline void Insert(Sequence seq, Team team, int t) {
  const Frame frame = seq.frames[t];
  const float cutoff = Unordered(Get(seq.infos + kPrBest + (t & 1))) -
                       as_type<float>(Get(seq.infos + kPrBeam + ((t + 1) & 1)));
  device atomic_int *table = TableOf(seq, t);
  const int num_words = NumWords(frame.num_arcs);
  for (int first = team.index; first < num_words;
       first += kUnroll * team.size) {
    float scores[kUnroll];
    int dests[kUnroll];
    for (int k = 0; k < kUnroll; ++k) {
      const int i = (first + k * team.size) * kSimdWidth + team.lane;
      const bool exists = i < frame.num_arcs;
      const int slot = ArcAt(seq, frame.first_arc + (exists ? i : 0));
      const Ending ending = seq.endings[slot];
      scores[k] = exists ? ending.score : -INFINITY;
      dests[k] = ending.dest;
    }
    int firsts[kUnroll], bests[kUnroll];
    for (int k = 0; k < kUnroll; ++k) {
      device atomic_int *of_dest = table + 2 * long(dests[k]);  // NOLINT
      firsts[k] = Get(of_dest);
      bests[k] = Get(of_dest + 1);
    }
    for (int k = 0; k < kUnroll; ++k) {
      const int word = first + k * team.size, i = word * kSimdWidth + team.lane;
      const bool is_over = scores[k] > cutoff;
      const uint bits = Ballot(is_over);
      if (team.lane == 0 && word < num_words) seq.over_cutoff[word] = bits;
      if (!is_over) continue;
      device atomic_int *of_dest = table + 2 * long(dests[k]);  // NOLINT
      // Most arcs change nothing, so the conditions save atomic operations.  If
      // a loaded value is not up to date, the only cost is one more atomic
      // operation.
      if (firsts[k] > i)
        atomic_fetch_min_explicit(of_dest, i, memory_order_relaxed);
      if (bests[k] < Ordered(scores[k]))
        atomic_fetch_max_explicit(of_dest + 1, Ordered(scores[k]),
                                  memory_order_relaxed);
    }
  }
}

// Finds the first arc into each state of the next frame, and counts these
// states and the arcs that leave these states.  If the next frame is the last
// frame, this step also looks for arcs with label -1 that leave that frame.
template <int kUnroll>
inline void FindFirsts(Sequence seq, Team team, int t) {
  const Frame frame = seq.frames[t];
  device const atomic_int *table = TableOf(seq, t);
  const Share words = ShareOf(team, NumWords(frame.num_arcs));
  int num_states = 0, num_arcs = 0;
  for (int first = words.begin; first < words.end; first += kUnroll) {
    bool is_over[kUnroll];
    int dests[kUnroll], firsts[kUnroll];
    for (int k = 0; k < kUnroll; ++k) {
      const int word = min(first + k, words.end - 1),  // NOLINT
          i = word * kSimdWidth + team.lane;
      is_over[k] = first + k < words.end &&
                   (seq.over_cutoff[word] >> team.lane & 1u) != 0;
      dests[k] =
          seq.endings[ArcAt(seq, frame.first_arc + (is_over[k] ? i : 0))].dest;
    }
    for (int k = 0; k < kUnroll; ++k)
      firsts[k] = Get(table + 2 * long(dests[k]));  // NOLINT
    for (int k = 0; k < kUnroll; ++k) {
      const int word = first + k;
      const bool is_first =
          is_over[k] && firsts[k] == word * kSimdWidth + team.lane;
      if (is_first) {
        const int begin = seq.leaving_begins[dests[k]],
                  end = seq.leaving_begins[dests[k] + 1];
        num_arcs += end - begin;
        if (t + 2 == seq.num_rows) FindFinalArc(seq, begin, end);
      }
      const uint bits = Ballot(is_first);
      num_states += static_cast<int>(popcount(bits));
      if (team.lane == 0 && word < words.end) seq.is_first[word] = bits;
    }
  }
  num_arcs = simd_sum(num_arcs);
  if (team.lane == 0) seq.counts[team.index] = int2(num_states, num_arcs);
}

// The sums of `counts` over the simdgroups before this simdgroup, and over all
// simdgroups.
struct Sums {
  int states_before, arcs_before, states, arcs;
};

inline Sums SumsOf(Sequence seq, Team team) {
  Sums ans = {0, 0, 0, 0};
  for (int i = team.lane; i < team.size; i += kSimdWidth) {
    const int2 count = seq.counts[i];
    ans.states += count.x;
    ans.arcs += count.y;
    if (i >= team.index) continue;
    ans.states_before += count.x;
    ans.arcs_before += count.y;
  }
  return Sums{simd_sum(ans.states_before), simd_sum(ans.arcs_before),
              simd_sum(ans.states), simd_sum(ans.arcs)};
}

// Returns how many elements of a ring there are from `begin` to `end` - 1.
inline int InUse(int begin, int end, int size) {
  return end >= begin ? end - begin : end - begin + size;
}

// Returns the position of the nth set bit, counted from 0.  `bits` must have
// more than `nth` set bits.
inline int NthBit(uint bits, int nth) {
  int position = 0;
  for (int width = kSimdWidth / 2; width > 0; width /= 2) {
    const uint low = (bits >> position) & ((1u << width) - 1u);
    const int count = static_cast<int>(popcount(low));
    if (nth < count) continue;
    nth -= count;
    position += width;
  }
  return position;
}

// first_live  the first frame whose states and arcs are still needed
inline void MakeStates(Sequence seq, Team team, int t, int first_live) {
  const Frame frame = seq.frames[t], live = seq.frames[first_live];
  const int max_states = seq.params->max_states,
            max_arcs = seq.params->max_arcs;
  const Sums sums = SumsOf(seq, team);
  Frame next = {StateAt(seq, frame.first_state + frame.num_states), sums.states,
                ArcAt(seq, frame.first_arc + frame.num_arcs),
                // No arc leaves a state after the last frame.
                t + 1 < seq.num_rows ? sums.arcs : 0};
  const bool fits =
      InUse(live.first_state, next.first_state, max_states) + next.num_states <
          max_states &&
      InUse(live.first_arc, next.first_arc, max_arcs) + next.num_arcs <
          max_arcs;
  if (!fits) next.num_states = next.num_arcs = 0;
  if (team.IsFirst()) {
    if (!fits) Fail(seq, kPrSmallRings);
    if (t + 1 == seq.num_rows) {
      if (next.num_states > 1) Fail(seq, kPrFinalArcs);
      Set(seq.infos + kPrExtraStates,
          next.num_states == 0 && seq.num_states > 0 ? 1 : 0);
    }
    seq.frames[t + 1] = next;
    Set(seq.infos + kPrBest + ((t + 1) & 1), kOrderedMinusInfinity);
  }
  if (!fits) return;
  device atomic_int *table = TableOf(seq, t);
  const Share words = ShareOf(team, NumWords(frame.num_arcs));
  int first_number = sums.states_before, next_arc = sums.arcs_before;
  for (int begin = words.begin; begin < words.end; begin += kSimdWidth) {
    const int word = begin + team.lane;
    const uint bits = word < words.end ? seq.is_first[word] : 0;
    const int count = static_cast<int>(popcount(bits)),
              before = Exclusive(count), total = simd_sum(count);
    for (int offset = 0; offset < total; offset += kSimdWidth) {
      const int i = offset + team.lane, lane = LaneOf(before, i),
                nth = i - simd_shuffle(before, ushort(lane));
      const uint of_word = simd_shuffle(bits, ushort(lane));
      const bool exists = i < total;
      int dest = 0, graph_arc = 0, degree = 0;
      if (exists) {
        const int arc = (begin + lane) * kSimdWidth + NthBit(of_word, nth);
        dest = seq.endings[ArcAt(seq, frame.first_arc + arc)].dest;
        graph_arc = seq.leaving_begins[dest];
        degree = seq.leaving_begins[dest + 1] - graph_arc;
      }
      const int first_arc = next_arc + Exclusive(degree);
      if (exists) {
        device atomic_int *of_dest = table + 2 * long(dest);  // NOLINT
        const int number = first_number + i,
                  slot = StateAt(seq, next.first_state + number);
        seq.active[slot] = Active{dest, Get(of_dest + 1), first_arc, graph_arc};
        seq.num_kept[slot] = 0;
        Set(of_dest, EntryOfNumber(number));
      }
      next_arc += simd_sum(degree);
    }
    first_number += total;
  }
}

// An arc under the cutoff remains if another arc makes its destination active.
// An arc is dropped if the best score of its destination exceeds the arc's
// score by more than a limit.  The pruning of the window would drop such an arc
// later, because PropagateBackward() of intersect_dense_pruned.cu checks that
// no path's score exceeds the best path's score by more than 2.  So a limit of
// output_beam + 2 would be enough.  This step uses 2.5 and a relative term
// instead of 2.  The difference is more than the rounding error in the frames
// of a window.
template <int kUnroll>
inline void Resolve(Sequence seq, Team team, int t) {
  const Frame frame = seq.frames[t];
  device const atomic_int *table = TableOf(seq, t);
  const float beam = seq.params->output_beam + 2.5f;
  const int step = team.size * kSimdWidth;
  for (int first = team.index * kSimdWidth + team.lane; first < frame.num_arcs;
       first += kUnroll * step) {
    int dests[kUnroll], entries[kUnroll];
    float bests[kUnroll], scores[kUnroll];
    for (int k = 0; k < kUnroll; ++k) {
      const int i = first + k * step;
      const int slot =
          ArcAt(seq, frame.first_arc + (i < frame.num_arcs ? i : first));
      const Ending ending = seq.endings[slot];
      dests[k] = ending.dest;
      scores[k] = ending.score;
    }
    for (int k = 0; k < kUnroll; ++k) {
      device const atomic_int *of_dest = table + 2 * long(dests[k]);  // NOLINT
      entries[k] = Get(of_dest);
      bests[k] = Unordered(Get(of_dest + 1));
    }
    for (int k = 0; k < kUnroll; ++k) {
      const int i = first + k * step;
      if (i >= frame.num_arcs) continue;
      const bool remains =
          HasNumber(entries[k]) &&
          scores[k] - bests[k] >= -(beam + fabs(bests[k]) * 1e-5f);
      seq.next_states[ArcAt(seq, frame.first_arc + i)] =
          remains ? NumberOf(entries[k]) : -1;
    }
  }
}

// Removes a frame's states from the table of the previous frame.
inline void ForgetStates(Sequence seq, Team team, int t) {
  if (t == 0) return;
  const Frame frame = seq.frames[t];
  device atomic_int *table = TableOf(seq, t - 1);
  for (int j = team.index * kSimdWidth + team.lane; j < frame.num_states;
       j += team.size * kSimdWidth) {
    const int slot = StateAt(seq, frame.first_state + j);
    device atomic_int *of_state =
        table + 2 * long(seq.active[slot].state);  // NOLINT
    Set(of_state, kNone);
    Set(of_state + 1, kOrderedMinusInfinity);
  }
}

#endif  // K2_CSRC_MPS_KERNELS_PRUNED_FRAME_H_
