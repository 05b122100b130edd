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

#include "k2/csrc/mps/kernels/arc.h"
#include "k2/csrc/mps/kernels/lattice.h"
#include "k2/csrc/mps/kernels/simdgroup.h"

// The lattice of intersect_dense from the scores of its states, as
// MultiGraphDenseIntersect::FormatOutput() makes it: the same states and arcs
// in the same order, with the same bits.
//
// A state of the lattice is a state of the graph at one of times 0..T, T the
// number of the sequence's frames; all copies of an FSA's states at one time
// are a frame here.  Frames are ordered by FSA, then by time.  A simdgroup does
// a frame by itself, 32 states or arcs at a time, so nothing waits for another
// frame and no order is left to chance:
//
//   count_lattice    how many states and arcs of each frame are kept
//   place_lattice    where those of each frame begin, and the totals
//   emit_lattice     states, arcs and maps, each at its place
//
// The unpruned product is never in memory, but for a bit for each state.

using namespace metal;

// Bits of FsaBasicProperties, see k2/csrc/fsa.h.
constant int kArcSorted = 0x10;
constant int kArcSortedAndDeterministic = 0x20;
constant int kEpsilonFree = 0x40;
constant int kMaybeAccessible = 0x80;
constant int kMaybeCoaccessible = 0x100;
constant int kNonempty = 0x02;

// What was intersected, and the scores of states; see intersect_dense.metal.
struct Input {
  device const Arc *arcs;
  device const int *state_begins, *leaving_begins, *entering_begins, *entering;
  device const float *b_scores;
  device const int *b_begins, *a_to_b_map;
  device const float *state_scores;  // step t begins at 2 * num_states * t
  // [num_fsas * num_steps], if has_best_arcs: the arc of the best path that
  // leaves each frame, -1 if there is none.
  device const int *best_arcs;
  int num_states, num_steps, num_words;
};

// An FSA and its sequence.
struct Fsa {
  int first_state, num_states;  // in the graph
  int first_frame, last_time, first_row;
};

inline Fsa GetFsa(Input in, int fsa) {
  const int b = in.a_to_b_map[fsa], first_row = in.b_begins[b],
            first_state = in.state_begins[fsa];
  return Fsa{first_state, in.state_begins[fsa + 1] - first_state,
             fsa * in.num_steps, in.b_begins[b + 1] - first_row, first_row};
}

inline device const float *ForwardAt(Input in, Fsa fsa, int t) {
  return in.state_scores + 2 * (long(t) * in.num_states + fsa.first_state) +
         fsa.num_states;
}

inline device const float *BackwardAt(Input in, Fsa fsa, int t) {
  return in.state_scores +
         2 * (long(fsa.last_time - t) * in.num_states + fsa.first_state);
}

inline float StartScore(Input in, Fsa fsa) {
  return fsa.num_states == 0 ? -INFINITY : BackwardAt(in, fsa, 0)[0];
}

inline float EndScore(Input in, Fsa fsa) {
  return fsa.num_states == 0
             ? -INFINITY
             : ForwardAt(in, fsa, fsa.last_time)[fsa.num_states - 1];
}

// What is at most this far from the best path is pruned.
inline float Cutoff(Input in, Fsa fsa, constant LatticeParams &params) {
  const float start = StartScore(in, fsa), end = EndScore(in, fsa);
  return (start < end ? start : end) - params.beam;
}

// The arc of the best path that leaves an FSA's states at time t, or -1.
inline int BestArc(Input in, Fsa fsa, int t, constant LatticeParams &params) {
  return params.has_best_arcs && t < fsa.last_time
             ? in.best_arcs[fsa.first_frame + t]
             : -1;
}

// The states of an FSA at one time.
struct States {
  device const float *forward, *backward;
  float cutoff;
  int best;  // the state of the best path, or -1
};

inline States GetStates(Input in, Fsa fsa, int t, float cutoff,
                        constant LatticeParams &params) {
  States ans = {ForwardAt(in, fsa, t), BackwardAt(in, fsa, t), cutoff, -1};
  const int before = t > 0 ? BestArc(in, fsa, t - 1, params) : -1,
            after = BestArc(in, fsa, t, params);
  if (after >= 0) ans.best = in.arcs[after].src_state;
  if (before >= 0) ans.best = in.arcs[before].dest_state;
  return ans;
}

inline bool IsKept(States states, int state) {
  return states.forward[state] + states.backward[state] > states.cutoff ||
         state == states.best;
}

// The arcs from an FSA's states at one time to those at the next.
struct Arcs {
  States from, to;
  device const float *row;  // of b_scores
  int num_columns;
  int best;  // the arc of the best path, or -1
};

inline Arcs GetArcs(Input in, Fsa fsa, int t, float cutoff,
                    constant LatticeParams &params) {
  return Arcs{GetStates(in, fsa, t, cutoff, params),
              GetStates(in, fsa, t + 1, cutoff, params),
              in.b_scores + long(fsa.first_row + t) * params.stride,
              params.num_columns, BestArc(in, fsa, t, params)};
}

// k2 keeps label + 1 in 16 bits.
inline int Column(Arc arc) { return (arc.label + 1) & 0xffff; }

inline float ArcScore(Arcs arcs, Arc arc) {
  const int column = Column(arc);
  return column < arcs.num_columns ? arc.score + arcs.row[column] : -INFINITY;
}

inline bool IsKept(Arcs arcs, Arc arc, int index) {
  if (index == arcs.best) return true;
  return IsKept(arcs.from, arc.src_state) && IsKept(arcs.to, arc.dest_state) &&
         arcs.from.forward[arc.src_state] + ArcScore(arcs, arc) +
                 arcs.to.backward[arc.dest_state] >
             arcs.from.cutoff;
}

// Where the words of a frame begin, see count_lattice: room for as many as all
// FSAs may have, since each may need one that it does not fill.
inline long WordsOf(Input in, Fsa fsa, int index, int t) {
  return long(t) * in.num_words + fsa.first_state / kLtSimdWidth + index;
}

// What is kept of a frame.
struct Count {
  int states, arcs;
  int leaving_arcs;  // of the graph, from these states
  int not_properties;
};

// What precedes an arc among those that are kept.
struct Last {
  int src_state, dest_state, label;
};

// arcs, ...      see Input
// words          for each frame a bit for each state, that it is kept, and how
//                many bits of the frame are before these 32
// counts         [num_fsas * num_steps]
[[max_total_threads_per_threadgroup(kLtMaxThreads)]]
kernel void count_lattice(device const Arc *arcs [[buffer(0)]],
                          device const int *state_begins [[buffer(1)]],
                          device const int *leaving_begins [[buffer(2)]],
                          device const int *entering_begins [[buffer(3)]],
                          device const int *entering [[buffer(4)]],
                          device const float *b_scores [[buffer(5)]],
                          device const int *b_begins [[buffer(6)]],
                          device const int *a_to_b_map [[buffer(7)]],
                          device const float *state_scores [[buffer(8)]],
                          device const int *best_arcs [[buffer(9)]],
                          constant LatticeParams &params [[buffer(10)]],
                          device uint2 *words [[buffer(11)]],
                          device Count *counts [[buffer(12)]],
                          uint thread_index [[thread_position_in_grid]]) {
  const Input in = {arcs,
                    state_begins,
                    leaving_begins,
                    entering_begins,
                    entering,
                    b_scores,
                    b_begins,
                    a_to_b_map,
                    state_scores,
                    best_arcs,
                    params.num_states,
                    params.num_steps,
                    params.num_words};
  const int frame = int(thread_index) / kLtSimdWidth,
            lane = int(thread_index) % kLtSimdWidth;
  const int index = frame / params.num_steps, t = frame % params.num_steps;
  if (index >= params.num_fsas) return;
  const Fsa fsa = GetFsa(in, index);
  if (t > fsa.last_time) {
    if (lane == 0) counts[frame] = Count{0, 0, 0, 0};
    return;
  }
  const float cutoff = Cutoff(in, fsa, params);
  const States states = GetStates(in, fsa, t, cutoff, params);
  Count count = {0, 0, 0, 0};

  device const int *arc_begins = leaving_begins + fsa.first_state;
  const int num_words = (fsa.num_states + kLtSimdWidth - 1) / kLtSimdWidth;
  device uint2 *frame_words = words + WordsOf(in, fsa, index, t);
  for (int word = 0; word < num_words; ++word) {
    const int s = word * kLtSimdWidth + lane;
    const bool kept = s < fsa.num_states && IsKept(states, s);
    if (kept) count.leaving_arcs += arc_begins[s + 1] - arc_begins[s];
    const uint bits = Ballot(kept);
    if (lane == 0) frame_words[word] = uint2(bits, uint(count.states));
    count.states += int(popcount(bits));
  }
  count.leaving_arcs = simd_sum(count.leaving_arcs);

  if (count.states > 0) {
    // Properties are about where FSAs begin and end; usually that is here.
    const int last = fsa.num_states - 1;
    const bool has_start = IsKept(GetStates(in, fsa, 0, cutoff, params), 0),
               has_end = IsKept(
                   GetStates(in, fsa, fsa.last_time, cutoff, params), last);
    if (!has_start || !has_end) count.not_properties |= kLtUnknown;

    int num_sources = 0, num_dests = 0;
    if (t < fsa.last_time) {
      const Arcs leaving = GetArcs(in, fsa, t, cutoff, params);
      Last last_kept = {-1, -1, -1};
      const int end = arc_begins[fsa.num_states];
      for (int begin = arc_begins[0]; begin < end; begin += kLtSimdWidth) {
        const int i = begin + lane;
        const Arc arc = in.arcs[i < end ? i : begin];
        const bool kept = i < end && IsKept(leaving, arc, i);
        const uint bits = Ballot(kept);
        const int label = Column(arc) - 1;
        // As unsigned numbers, label -1 is the largest.
        const uint order = uint(label);
        const uint below = Below(bits, lane);
        const ushort from = ushort(below == 0 ? lane : HighestBit(below));
        const int src = simd_shuffle(arc.src_state, from),
                  dest = simd_shuffle(arc.dest_state, from),
                  other_label = simd_shuffle(label, from);
        const Last before =
            below == 0 ? last_kept : Last{src, dest, other_label};
        const bool is_first = before.src_state != arc.src_state;
        num_sources += int(popcount(Ballot(kept && is_first)));
        if (kept) {
          if (label == 0) count.not_properties |= kEpsilonFree;
          if (!is_first) {
            const uint other = uint(before.label);
            if (order <= other)
              count.not_properties |= kArcSortedAndDeterministic;
            if (order < other ||
                (order == other && arc.dest_state < before.dest_state))
              count.not_properties |= kArcSorted;
          }
        }
        if (bits != 0) {
          const ushort highest = ushort(HighestBit(bits));
          last_kept = Last{simd_shuffle(arc.src_state, highest),
                           simd_shuffle(arc.dest_state, highest),
                           simd_shuffle(label, highest)};
        }
        count.arcs += int(popcount(bits));
      }
    }
    if (t > 0) {
      const Arcs entering_arcs = GetArcs(in, fsa, t - 1, cutoff, params);
      device const int *begins = entering_begins + fsa.first_state;
      int last_dest = -1;
      const int end = begins[fsa.num_states];
      for (int begin = begins[0]; begin < end; begin += kLtSimdWidth) {
        const int at = begin + lane, i = entering[at < end ? at : begin];
        const Arc arc = in.arcs[i];
        const uint bits = Ballot(at < end && IsKept(entering_arcs, arc, i));
        const uint below = Below(bits, lane);
        const int other = simd_shuffle(
            arc.dest_state, ushort(below == 0 ? lane : HighestBit(below)));
        const bool is_first =
            (below == 0 ? last_dest : other) != arc.dest_state;
        num_dests += int(popcount(bits & Ballot(is_first)));
        if (bits != 0)
          last_dest = simd_shuffle(arc.dest_state, ushort(HighestBit(bits)));
      }
    }
    // The first state of an FSA is entered, and its last one left.
    if (count.states != num_dests + (t == 0 && has_start ? 1 : 0))
      count.not_properties |= kMaybeAccessible;
    if (count.states != num_sources + (t == fsa.last_time && has_end ? 1 : 0))
      count.not_properties |= kMaybeCoaccessible;
  }
  count.not_properties = simd_or(count.not_properties);
  if (lane == 0) counts[frame] = count;
}

// counts          [num_fsas * num_steps]
// frame_states    [num_fsas * num_steps + 1], gets the number of states before
// a frame frame_arcs      [num_fsas * num_steps + 1], that of arcs totals
// [kLtNumTotals]
//
// There is one threadgroup.
[[max_total_threads_per_threadgroup(kLtMaxThreads)]]
kernel void place_lattice(device const Arc *arcs [[buffer(0)]],
                          device const int *state_begins [[buffer(1)]],
                          device const int *leaving_begins [[buffer(2)]],
                          device const int *entering_begins [[buffer(3)]],
                          device const int *entering [[buffer(4)]],
                          device const float *b_scores [[buffer(5)]],
                          device const int *b_begins [[buffer(6)]],
                          device const int *a_to_b_map [[buffer(7)]],
                          device const float *state_scores [[buffer(8)]],
                          device const int *best_arcs [[buffer(9)]],
                          device const Count *counts [[buffer(10)]],
                          constant LatticeParams &params [[buffer(11)]],
                          device int *frame_states [[buffer(12)]],
                          device int *frame_arcs [[buffer(13)]],
                          device long *totals [[buffer(14)]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint num_threads [[threads_per_threadgroup]]) {
  const Input in = {arcs,
                    state_begins,
                    leaving_begins,
                    entering_begins,
                    entering,
                    b_scores,
                    b_begins,
                    a_to_b_map,
                    state_scores,
                    best_arcs,
                    params.num_states,
                    params.num_steps,
                    params.num_words};
  const int num_frames = params.num_fsas * params.num_steps;
  threadgroup long states[kLtMaxThreads], numbers[kLtMaxThreads],
      leaving[kLtMaxThreads];
  threadgroup atomic_int not_properties, rounding, difference;

  const int thread_id = int(thread_index), threads = int(num_threads);
  if (thread_id == 0) {
    atomic_store_explicit(&not_properties, 0, memory_order_relaxed);
    atomic_store_explicit(&rounding, 0, memory_order_relaxed);
    atomic_store_explicit(&difference, 0, memory_order_relaxed);
  }
  // Each thread does a number of frames in a row.
  const int each = (num_frames + threads - 1) / threads,
            begin = min(thread_id * each, num_frames),
            end = min(begin + each, num_frames);
  long num_states = 0, num_arcs = 0, num_leaving = 0;
  int lacks = 0;
  for (int i = begin; i < end; ++i) {
    const Count count = counts[i];
    num_states += count.states;
    num_arcs += count.arcs;
    num_leaving += count.leaving_arcs;
    lacks |= count.not_properties;
  }
  states[thread_id] = num_states;
  numbers[thread_id] = num_arcs;
  leaving[thread_id] = num_leaving;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int distance = 1; distance < threads; distance *= 2) {
    const bool add = thread_id >= distance;
    const int other = add ? thread_id - distance : thread_id;
    const long more_states = states[other], more_arcs = numbers[other],
               more_leaving = leaving[other];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (add) {
      states[thread_id] += more_states;
      numbers[thread_id] += more_arcs;
      leaving[thread_id] += more_leaving;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  // Beyond 32 bits nobody looks at them.
  int state_begin = int(states[thread_id] - num_states),
      arc_begin = int(numbers[thread_id] - num_arcs);
  for (int i = begin; i < end; ++i) {
    frame_states[i] = state_begin;
    frame_arcs[i] = arc_begin;
    state_begin += counts[i].states;
    arc_begin += counts[i].arcs;
  }
  if (thread_id == threads - 1) {
    frame_states[num_frames] = int(states[thread_id]);
    frame_arcs[num_frames] = int(numbers[thread_id]);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);

  int is_near = 0;
  float largest = 0.0f;
  for (int i = thread_id; i < params.num_fsas; i += threads) {
    const Fsa fsa = GetFsa(in, i);
    if (frame_arcs[fsa.first_frame] ==
        frame_arcs[fsa.first_frame + params.num_steps])
      lacks |= kNonempty;
    // See MayCutBestPath() in k2/csrc/best_paths.h.
    const float start = StartScore(in, fsa), end_score = EndScore(in, fsa),
                apart = fabs(end_score - start),
                size = fmax(fabs(start), fabs(end_score));
    if (!(params.beam >
          apart + (float(fsa.last_time) + 1.0f) * FLT_EPSILON * size) &&
        start > -INFINITY && end_score > -INFINITY)
      is_near = 1;
    if (apart > largest) largest = apart;
  }
  atomic_fetch_or_explicit(&not_properties, lacks, memory_order_relaxed);
  atomic_fetch_or_explicit(&rounding, is_near, memory_order_relaxed);
  // Floats that are not negative are in the order of their bits.
  atomic_fetch_max_explicit(&difference, as_type<int>(largest),
                            memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_id == threads - 1) {
    totals[kLtStates] = states[thread_id];
    totals[kLtArcs] = numbers[thread_id];
    totals[kLtLeavingArcs] = leaving[thread_id];
    totals[kLtNotProperties] =
        atomic_load_explicit(&not_properties, memory_order_relaxed);
    totals[kLtRounding] = atomic_load_explicit(&rounding, memory_order_relaxed);
    totals[kLtDifference] =
        atomic_load_explicit(&difference, memory_order_relaxed);
  }
}

// The number of states of a frame that are kept and before `state`.
inline int Rank(device const uint2 *words, int state) {
  const uint2 word = words[state / kLtSimdWidth];
  return int(word.y) + int(popcount(Below(word.x, state % kLtSimdWidth)));
}

// words        see count_lattice
// frame_states, frame_arcs   see place_lattice
// row_splits1  [num_fsas + 1], row_ids1 [states], row_splits2 [states + 1] and
// row_ids2 [arcs] are those of the lattice
// out          [arcs], its arcs
// arc_map_a    [arcs], the arc of the graph that each was made of
// arc_map_b    [arcs], the element of b_scores
[[max_total_threads_per_threadgroup(kLtMaxThreads)]]
kernel void emit_lattice(device const Arc *arcs [[buffer(0)]],
                         device const int *state_begins [[buffer(1)]],
                         device const int *leaving_begins [[buffer(2)]],
                         device const int *entering_begins [[buffer(3)]],
                         device const int *entering [[buffer(4)]],
                         device const float *b_scores [[buffer(5)]],
                         device const int *b_begins [[buffer(6)]],
                         device const int *a_to_b_map [[buffer(7)]],
                         device const float *state_scores [[buffer(8)]],
                         device const int *best_arcs [[buffer(9)]],
                         constant LatticeParams &params [[buffer(10)]],
                         device const uint2 *words [[buffer(11)]],
                         device const int *frame_states [[buffer(12)]],
                         device const int *frame_arcs [[buffer(13)]],
                         device int *row_splits1 [[buffer(14)]],
                         device int *row_ids1 [[buffer(15)]],
                         device int *row_splits2 [[buffer(16)]],
                         device int *row_ids2 [[buffer(17)]],
                         device Arc *out [[buffer(18)]],
                         device int *arc_map_a [[buffer(19)]],
                         device int *arc_map_b [[buffer(20)]],
                         uint thread_index [[thread_position_in_grid]]) {
  const Input in = {arcs,
                    state_begins,
                    leaving_begins,
                    entering_begins,
                    entering,
                    b_scores,
                    b_begins,
                    a_to_b_map,
                    state_scores,
                    best_arcs,
                    params.num_states,
                    params.num_steps,
                    params.num_words};
  const int frame = int(thread_index) / kLtSimdWidth,
            lane = int(thread_index) % kLtSimdWidth;
  const int index = frame / params.num_steps, t = frame % params.num_steps;
  if (index >= params.num_fsas) return;
  const Fsa fsa = GetFsa(in, index);
  const int states_begin = frame_states[frame],
            states_end = frame_states[frame + 1],
            fsa_begin = frame_states[fsa.first_frame],
            arcs_end = frame_arcs[frame + 1];

  if (lane == 0 && t == 0) row_splits1[index] = states_begin;
  for (int i = states_begin + lane; i < states_end; i += kLtSimdWidth)
    row_ids1[i] = index;

  int position = frame_arcs[frame];
  int last_row = states_begin - 1;
  if (position < arcs_end) {
    const Arcs leaving = GetArcs(in, fsa, t, Cutoff(in, fsa, params), params);
    device const uint2 *from_words = words + WordsOf(in, fsa, index, t);
    device const uint2 *to_words = words + WordsOf(in, fsa, index, t + 1);
    const int end = leaving_begins[fsa.first_state + fsa.num_states];
    for (int begin = leaving_begins[fsa.first_state]; begin < end;
         begin += kLtSimdWidth) {
      const int i = begin + lane;
      const Arc arc = in.arcs[i < end ? i : begin];
      const bool kept = i < end && IsKept(leaving, arc, i);
      const uint bits = Ballot(kept);
      if (bits == 0) continue;
      const int row = kept ? states_begin + Rank(from_words, arc.src_state) : 0;
      const uint below = Below(bits, lane);
      const int other =
          simd_shuffle(row, ushort(below == 0 ? lane : HighestBit(below)));
      if (kept) {
        const int at = position + int(popcount(below)), column = Column(arc);
        out[at] = Arc{row - fsa_begin,
                      states_end + Rank(to_words, arc.dest_state) - fsa_begin,
                      column - 1, ArcScore(leaving, arc)};
        row_ids2[at] = row;
        arc_map_a[at] = i;
        arc_map_b[at] = (fsa.first_row + t) * params.stride + column;
        for (int r = (below == 0 ? last_row : other) + 1; r <= row; ++r)
          row_splits2[r] = at;
      }
      last_row = simd_shuffle(row, ushort(HighestBit(bits)));
      position += int(popcount(bits));
    }
  }
  for (int r = last_row + 1 + lane; r < states_end; r += kLtSimdWidth)
    row_splits2[r] = arcs_end;
  if (frame == params.num_fsas * params.num_steps - 1 && lane == 0) {
    row_splits1[params.num_fsas] = states_end;
    row_splits2[states_end] = arcs_end;
  }
}

// Follows the best path of each FSA by its backward scores: of equal arcs the
// first one is taken, as by FindBestPaths() of k2/csrc/best_paths.h.
//
// best_arcs   [num_fsas * num_steps]; all are written
// paths       [num_fsas][3], gets the number of a path's states, that of arcs
//             of the graph that leave them, and the state after the last step:
//             0, 0 and -1 if there is no path
//
// There is one simdgroup for each FSA.  A dispatch that does not begin with
// step 0 goes on from `paths`.
[[max_total_threads_per_threadgroup(kLtMaxThreads)]]
kernel void find_best_paths(device const Arc *arcs [[buffer(0)]],
                            device const int *state_begins [[buffer(1)]],
                            device const int *leaving_begins [[buffer(2)]],
                            device const int *entering_begins [[buffer(3)]],
                            device const int *entering [[buffer(4)]],
                            device const float *b_scores [[buffer(5)]],
                            device const int *b_begins [[buffer(6)]],
                            device const int *a_to_b_map [[buffer(7)]],
                            device const float *state_scores [[buffer(8)]],
                            device int *best_arcs [[buffer(9)]],
                            constant LatticeParams &params [[buffer(10)]],
                            device int *paths [[buffer(11)]],
                            constant BestPathsParams &steps [[buffer(12)]],
                            uint thread_index [[thread_position_in_grid]]) {
  const Input in = {arcs,
                    state_begins,
                    leaving_begins,
                    entering_begins,
                    entering,
                    b_scores,
                    b_begins,
                    a_to_b_map,
                    state_scores,
                    best_arcs,
                    params.num_states,
                    params.num_steps,
                    params.num_words};
  const int index = int(thread_index) / kLtSimdWidth,
            lane = int(thread_index) % kLtSimdWidth;
  if (index >= params.num_fsas) return;
  const Fsa fsa = GetFsa(in, index);
  device int *path = paths + 3 * index;
  int num_states = 1, num_leaving = 0,
      state = StartScore(in, fsa) > -INFINITY ? 0 : -1;
  if (steps.first_step > 0) {
    // Lane 0 alone reads `path`, since it alone writes there.
    if (lane == 0) {
      num_states = path[0];
      num_leaving = path[1];
      state = path[2];
    }
    state = simd_broadcast(state, 0);
  }
  for (int t = steps.first_step; t < steps.last_step; ++t) {
    int best = INT_MAX;
    if (state >= 0 && t < fsa.last_time) {
      const float score = BackwardAt(in, fsa, t)[state];
      device const float *next = BackwardAt(in, fsa, t + 1);
      device const float *row =
          in.b_scores + long(fsa.first_row + t) * params.stride;
      const int begin = leaving_begins[fsa.first_state + state],
                end = leaving_begins[fsa.first_state + state + 1];
      num_states += 1;
      num_leaving += end - begin;
      for (int i = begin; i < end && best == INT_MAX; i += kLtSimdWidth) {
        int mine = INT_MAX;
        if (i + lane < end) {
          const Arc arc = arcs[i + lane];
          const int column = Column(arc);
          if (column < params.num_columns &&
              next[arc.dest_state] + arc.score + row[column] == score)
            mine = i + lane;
        }
        best = simd_min(mine);
      }
      state = best != INT_MAX ? arcs[best].dest_state : -1;
    }
    if (lane == 0) best_arcs[fsa.first_frame + t] = best != INT_MAX ? best : -1;
  }
  if (lane == 0) {
    path[0] = state >= 0 ? num_states : 0;
    path[1] = state >= 0 ? num_leaving : 0;
    path[2] = state;
  }
}
