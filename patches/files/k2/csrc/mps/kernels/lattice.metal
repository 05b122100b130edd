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

#include "k2/csrc/mps/kernels/best_path.h"
#include "k2/csrc/mps/kernels/lattice_counts.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// Makes the lattice of intersect_dense from the scores of states.  The lattice
// is bit for bit identical to the lattice that
// MultiGraphDenseIntersect::FormatOutput() makes on the CPU, with states and
// arcs in the same order.
//
// In this file, a frame is all states of one FSA at one time.  Frames are
// ordered by FSA, then by time.
//
//   count_lattice    counts the kept states and arcs of each frame
//   place_lattice    adds up the counts to find the totals, and where each
//                    frame begins
//   emit_lattice     writes states, arcs and maps at their positions
//   find_best_paths  finds the best paths if pruning must keep them with any
//                    beam
//
// A simdgroup works on one frame, 32 states or arcs at a time, and does not
// wait for other frames.  Two runs give bit for bit the same results.  The
// kernels never store the unpruned product.  They store only which states of
// the product are kept, in `words`.

using namespace metal;

// The first arguments of all kernels of this file: `params`, and the members of
// Input.  The member best_arcs is not an input here, because find_best_paths
// writes best_arcs.
#define K2_LATTICE_INPUTS                                                   \
  device const Arc *arcs [[buffer(kLatticeArcs)]],                          \
      device const int *state_begins [[buffer(kLatticeStateBegins)]],       \
      device const int *leaving_begins [[buffer(kLatticeLeavingBegins)]],   \
      device const int *incoming_begins [[buffer(kLatticeIncomingBegins)]], \
      device const int *incoming [[buffer(kLatticeIncoming)]],              \
      device const float *b_scores [[buffer(kLatticeBScores)]],             \
      device const int *b_begins [[buffer(kLatticeBBegins)]],               \
      device const int *a_to_b_map [[buffer(kLatticeAToBMap)]],             \
      device const float *state_scores [[buffer(kLatticeStateScores)]],     \
      constant LatticeParams &params [[buffer(kLatticeParams)]]
#define K2_LATTICE_INPUT                                                     \
  Input {                                                                    \
    arcs, state_begins, leaving_begins, incoming_begins, incoming, b_scores, \
        b_begins, a_to_b_map, state_scores, best_arcs                        \
  }

// Returns the index of a frame's first word; see count_lattice.  The last word
// of an FSA may have unused bits.  The term `index` reserves an additional word
// for each earlier FSA, so that FSAs do not share words.
inline long WordsOf(Fsa fsa, int index, int t, constant LatticeParams &params) {
  return long(t) * params.num_words + fsa.first_state / kSimdWidth + index;
}

// words       a pair for each 32 states of a frame.  The first number has 32
//             bits, with a 1 for each kept state.  The second number is the
//             number of the frame's kept states before these 32 states
// counts      [num_fsas * num_steps]; all elements are written
[[max_total_threads_per_threadgroup(kLtFrameThreads)]]
kernel void count_lattice(K2_LATTICE_INPUTS,
                          device const int *best_arcs
                          [[buffer(kLatticeBestArcs)]],
                          device uint2 *words [[buffer(kLatticeWords)]],
                          device Count *counts [[buffer(kLatticeCounts)]],
                          uint thread_index [[thread_position_in_grid]]) {
  const Input in = K2_LATTICE_INPUT;
  const int frame = int(thread_index) / kSimdWidth,
            lane = int(thread_index) % kSimdWidth;
  const int index = frame / params.num_steps, t = frame % params.num_steps;
  if (index >= params.num_fsas) return;
  const Fsa fsa = GetFsa(in, index, params);
  if (t > fsa.last_time) {
    if (lane == 0) counts[frame] = Count{0, 0, 0, 0};
    return;
  }
  const float cutoff = Cutoff(in, fsa, params);
  Count count = CountStates(GetStates(in, fsa, t, cutoff, params), fsa,
                            leaving_begins + fsa.first_state,
                            words + WordsOf(fsa, index, t, params), lane);
  if (count.states > 0) CountArcs(in, fsa, t, cutoff, lane, params, count);
  count.leaving_arcs = simd_sum(count.leaving_arcs);
  count.not_properties = simd_or(count.not_properties);
  if (lane == 0) counts[frame] = count;
}

// Facts about FSAs and their lattices.
struct FsaFacts {
  int lacks;         // bits of FsaBasicProperties that the lattices lack
  int may_cut;       // whether rounding may prune an arc of a best path
  float difference;  // the largest |forward total - backward total|
};

// Returns the facts about every `step`-th FSA, from FSA `first` on.
inline FsaFacts DescribeFsas(Input in, device const int *frame_arcs, int first,
                             int step, constant LatticeParams &params) {
  FsaFacts ans = {0, 0, 0.0f};
  for (int i = first; i < params.num_fsas; i += step) {
    const Fsa fsa = GetFsa(in, i, params);
    if (frame_arcs[fsa.first_frame] ==
        frame_arcs[fsa.first_frame + params.num_steps])
      ans.lacks |= kLatticeNonempty;
    const float forward = StartScore(in, fsa, params),
                backward = EndScore(in, fsa, params),
                apart = fabs(backward - forward);
    if (MayCutBestPath(forward, backward, fsa.last_time, params.beam))
      ans.may_cut = 1;
    if (apart > ans.difference) ans.difference = apart;
  }
  return ans;
}

// counts         [num_fsas * num_steps]
// frame_states   [num_fsas * num_steps + 1], gets the number of states before
//                each frame
// frame_arcs     [num_fsas * num_steps + 1], gets the number of arcs before
//                each frame
// totals         [kLtNumTotals], see LatticeTotals
//
// There is one threadgroup.
[[max_total_threads_per_threadgroup(kLtMaxThreads)]]
kernel void place_lattice(K2_LATTICE_INPUTS,
                          device const int *best_arcs
                          [[buffer(kLatticeBestArcs)]],
                          device const Count *counts [[buffer(kLatticeCounts)]],
                          device int *frame_states
                          [[buffer(kLatticeFrameStates)]],
                          device int *frame_arcs [[buffer(kLatticeFrameArcs)]],
                          device long *totals [[buffer(kLatticeTotals)]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint num_threads [[threads_per_threadgroup]]) {
  const Input in = K2_LATTICE_INPUT;
  const int num_frames = params.num_fsas * params.num_steps;
  threadgroup long states[kLtMaxThreads], kept_arcs[kLtMaxThreads],
      leaving[kLtMaxThreads];
  threadgroup atomic_int not_properties, may_cut, difference;

  const int thread_id = int(thread_index), threads = int(num_threads);
  if (thread_id == 0) {
    atomic_store_explicit(&not_properties, 0, memory_order_relaxed);
    atomic_store_explicit(&may_cut, 0, memory_order_relaxed);
    atomic_store_explicit(&difference, 0, memory_order_relaxed);
  }
  // Each thread adds up the counts of `each` successive frames.
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
  kept_arcs[thread_id] = num_arcs;
  leaving[thread_id] = num_leaving;
  PrefixSums(states, thread_id, threads);
  PrefixSums(kept_arcs, thread_id, threads);
  PrefixSums(leaving, thread_id, threads);
  // If the totals exceed 32 bits, these positions are wrong.  But then the host
  // refuses the totals and does not use the positions.
  int state_begin = int(states[thread_id] - num_states),
      arc_begin = int(kept_arcs[thread_id] - num_arcs);
  for (int i = begin; i < end; ++i) {
    frame_states[i] = state_begin;
    frame_arcs[i] = arc_begin;
    state_begin += counts[i].states;
    arc_begin += counts[i].arcs;
  }
  if (thread_id == threads - 1) {
    frame_states[num_frames] = int(states[thread_id]);
    frame_arcs[num_frames] = int(kept_arcs[thread_id]);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);

  const FsaFacts facts =
      DescribeFsas(in, frame_arcs, thread_id, threads, params);
  atomic_fetch_or_explicit(&not_properties, lacks | facts.lacks,
                           memory_order_relaxed);
  atomic_fetch_or_explicit(&may_cut, facts.may_cut, memory_order_relaxed);
  // For floats that are not negative, the bits as integers have the same order
  // as the floats.
  atomic_fetch_max_explicit(&difference, as_type<int>(facts.difference),
                            memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_id == threads - 1) {
    totals[kLtStates] = states[thread_id];
    totals[kLtArcs] = kept_arcs[thread_id];
    totals[kLtLeavingArcs] = leaving[thread_id];
    totals[kLtNotProperties] =
        atomic_load_explicit(&not_properties, memory_order_relaxed);
    totals[kLtMayCut] = atomic_load_explicit(&may_cut, memory_order_relaxed);
    totals[kLtDifference] =
        atomic_load_explicit(&difference, memory_order_relaxed);
  }
}

// Returns the number of a frame's kept states before `state`.
inline int Rank(device const uint2 *words, int state) {
  const uint2 word = words[state / kSimdWidth];
  return int(word.y) + int(popcount(Below(word.x, state % kSimdWidth)));
}

// words        see count_lattice
// frame_states, frame_arcs   see place_lattice
// row_splits1  [num_fsas + 1], gets the row splits of axis 1 of the lattice
// row_ids1     [states], gets the row ids of axis 1
// row_splits2  [states + 1], gets the row splits of axis 2
// row_ids2     [arcs], gets the row ids of axis 2
// out          [arcs], gets the arcs of the lattice
// arc_map_a    [arcs], gets the arc of the graph from which each arc was made
// arc_map_b    [arcs], gets the element of b_scores from which each arc was
//              made
[[max_total_threads_per_threadgroup(kLtFrameThreads)]]
kernel void emit_lattice(
    K2_LATTICE_INPUTS, device const int *best_arcs [[buffer(kLatticeBestArcs)]],
    device const uint2 *words [[buffer(kLatticeWords)]],
    device const int *frame_states [[buffer(kLatticeFrameStates)]],
    device const int *frame_arcs [[buffer(kLatticeFrameArcs)]],
    device int *row_splits1 [[buffer(kLatticeRowSplits1)]],
    device int *row_ids1 [[buffer(kLatticeRowIds1)]],
    device int *row_splits2 [[buffer(kLatticeRowSplits2)]],
    device int *row_ids2 [[buffer(kLatticeRowIds2)]],
    device Arc *out [[buffer(kLatticeOut)]],
    device int *arc_map_a [[buffer(kLatticeArcMapA)]],
    device int *arc_map_b [[buffer(kLatticeArcMapB)]],
    uint thread_index [[thread_position_in_grid]]) {
  const Input in = K2_LATTICE_INPUT;
  const int frame = int(thread_index) / kSimdWidth,
            lane = int(thread_index) % kSimdWidth;
  const int index = frame / params.num_steps, t = frame % params.num_steps;
  if (index >= params.num_fsas) return;
  const Fsa fsa = GetFsa(in, index, params);
  const int states_begin = frame_states[frame],
            states_end = frame_states[frame + 1],
            fsa_begin = frame_states[fsa.first_frame],
            arcs_end = frame_arcs[frame + 1];

  if (lane == 0 && t == 0) row_splits1[index] = states_begin;
  for (int i = states_begin + lane; i < states_end; i += kSimdWidth)
    row_ids1[i] = index;

  int position = frame_arcs[frame];
  int last_row = states_begin - 1;
  if (position < arcs_end) {
    const Arcs leaving = GetArcs(in, fsa, t, Cutoff(in, fsa, params), params);
    device const uint2 *from_words = words + WordsOf(fsa, index, t, params);
    device const uint2 *to_words = words + WordsOf(fsa, index, t + 1, params);
    const int end = leaving_begins[fsa.first_state + fsa.num_states];
    for (int begin = leaving_begins[fsa.first_state]; begin < end;
         begin += kSimdWidth) {
      const int i = begin + lane;
      const Arc arc = in.arcs[i < end ? i : begin];
      const bool kept = i < end && IsKept(leaving, arc, i);
      const uint bits = Ballot(kept);
      if (bits == 0) continue;
      const int row = kept ? states_begin + Rank(from_words, arc.src_state) : 0;
      const int row_before = OfLaneBefore(row, bits, lane, last_row);
      if (kept) {
        const int at = position + int(popcount(Below(bits, lane))),
                  column = ColumnOf(arc);
        out[at] = Arc{row - fsa_begin,
                      states_end + Rank(to_words, arc.dest_state) - fsa_begin,
                      column - 1, ArcScore(leaving, arc)};
        row_ids2[at] = row;
        arc_map_a[at] = i;
        arc_map_b[at] = (fsa.first_row + t) * params.stride + column;
        // The states after row_before and before `row` have no arcs.
        for (int r = row_before + 1; r <= row; ++r) row_splits2[r] = at;
      }
      last_row = OfLastLane(row, bits);
      position += int(popcount(bits));
    }
  }
  // The states after last_row have no arcs either.
  for (int r = last_row + 1 + lane; r < states_end; r += kSimdWidth)
    row_splits2[r] = arcs_end;
  if (frame == params.num_fsas * params.num_steps - 1 && lane == 0) {
    row_splits1[params.num_fsas] = states_end;
    row_splits2[states_end] = arcs_end;
  }
}

// Follows the best path of each FSA with the help of the backward scores.  If
// several arcs are equally good, the path takes the first one.
//
// best_arcs   [num_fsas * num_steps]; the elements of this dispatch's steps are
//             written
// paths       [num_fsas][3], gets the number of a path's states, the number of
//             arcs of the graph that leave these states, and the state after
//             the last step; 0, 0 and -1 if there is no path
//
// There is one simdgroup for each FSA.  If the first step of a dispatch is not
// 0, the dispatch continues from `paths`.
[[max_total_threads_per_threadgroup(kLtFrameThreads)]]
kernel void find_best_paths(K2_LATTICE_INPUTS,
                            device int *best_arcs [[buffer(kLatticeBestArcs)]],
                            device int *paths [[buffer(kLatticePaths)]],
                            constant BestPathsParams &steps
                            [[buffer(kLatticeSteps)]],
                            uint thread_index [[thread_position_in_grid]]) {
  const Input in = K2_LATTICE_INPUT;
  const int index = int(thread_index) / kSimdWidth,
            lane = int(thread_index) % kSimdWidth;
  if (index >= params.num_fsas) return;
  const Fsa fsa = GetFsa(in, index, params);
  device int *path = paths + 3 * index;
  int num_states = 1, num_leaving = 0,
      state = StartScore(in, fsa, params) > -INFINITY ? 0 : -1;
  if (steps.first_step > 0) {
    // Only lane 0 reads `path` here.  Lane 0 also writes `path` below, so no
    // barrier is needed.
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
      const float score = BackwardAt(in, fsa, t, params)[state];
      device const float *next = BackwardAt(in, fsa, t + 1, params);
      device const float *row =
          in.b_scores + long(fsa.first_row + t) * params.stride;
      const int begin = leaving_begins[fsa.first_state + state],
                end = leaving_begins[fsa.first_state + state + 1];
      num_states += 1;
      num_leaving += end - begin;
      for (int i = begin; i < end && best == INT_MAX; i += kSimdWidth) {
        int mine = INT_MAX;
        if (i + lane < end) {
          const Arc arc = arcs[i + lane];
          const int column = ColumnOf(arc);
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
