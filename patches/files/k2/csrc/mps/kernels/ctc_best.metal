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
#include "k2/csrc/mps/kernels/ctc_blocks.h"
#include "k2/csrc/mps/kernels/simdgroup.h"

// The best paths of CTC's lattice, and the arcs that the lattice keeps; see
// ctc_pass.h.

using namespace metal;

static_assert(4 * kCtcBestFloats <= 32768,
              "Metal's limit of threadgroup memory");

// A visitor of Pass() that keeps the checkpoints, and the score of the best
// path.
struct BestCheckpoints {
  device BestScore *best;
  int begin, num_states, rows_of_block;
  int last_time, final_state;
  device float *total;

  template <typename Sums>
  void Leave(int, Sums, Sums) const {}

  void Take(int time, int s, BestScore score) const {
    if ((time & (rows_of_block - 1)) == 0)
      best[begin + time / rows_of_block * num_states + s] = score;
    if (time == last_time && s == final_state) *total = score.r;
  }
};

// incoming_begins  [params.num_states + 1], into `incoming`
// incoming         [params.num_arcs], arcs by the states that they enter
// best             checkpoints of params.rows_of_best_block rows
// scratch          [params.num_states * (kCtcScratchRows + 4)], for FSAs of
//                  many states
// best_totals      [params.num_fsas][2], the score of an FSA's best path: of
//                  the backward pass, of the forward pass
//
// There are two threadgroups for each FSA.
[[max_total_threads_per_threadgroup(kCtcMaxThreads)]]
kernel void ctc_best_scores(device const Arc *arcs [[buffer(0)]],
                            device const int *state_begins [[buffer(1)]],
                            device const int *leaving_begins [[buffer(2)]],
                            device const int *incoming_begins [[buffer(3)]],
                            device const int *incoming [[buffer(4)]],
                            device const float *b_scores [[buffer(5)]],
                            device const int *b_begins [[buffer(6)]],
                            device const uchar *penalized [[buffer(7)]],
                            device BestScore *best [[buffer(8)]],
                            device BestScore *scratch [[buffer(9)]],
                            device float *best_totals [[buffer(10)]],
                            constant CtcParams &params [[buffer(11)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint num_threads [[threads_per_threadgroup]]) {
  threadgroup BestScore cache[2 * kCtcMaxCachedStates];

  const int index = int(group) / 2;
  const bool forward = group % 2 != 0;
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  if (fsa.num_states == 0) {
    if (thread_index == 0) best_totals[group] = -INFINITY;
    return;
  }
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               nullptr, thread_index, num_threads);
  const Direction direction = {
      (forward ? incoming_begins : leaving_begins) + fsa.state_begin, incoming,
      forward};
  const int last_state = fsa.num_states - 1, rows = params.rows_of_best_block,
            initial = forward ? 0 : last_state,
            begin = forward ? 0 : fsa.num_rows;
  const BestCheckpoints checkpoints = {best,
                                       RowsBegin(params, fsa, rows, forward),
                                       fsa.num_states,
                                       rows,
                                       forward ? fsa.num_rows : 0,
                                       forward ? last_state : 0,
                                       best_totals + group};
  if (fsa.num_states <= kCtcMaxCachedStates) {
    threadgroup BestScore *first = cache, *second = cache + kCtcMaxCachedStates;
    Begin<BestScore>(input, initial, begin, first, checkpoints);
    Pass<BestScore>(params, input, direction, begin, fsa.num_rows, first,
                    second, checkpoints);
  } else {
    device BestScore *of_fsa =
        scratch + 4 * fsa.state_begin + (forward ? 2 * fsa.num_states : 0);
    Begin<BestScore>(input, initial, begin, of_fsa, checkpoints);
    Pass<BestScore>(params, input, direction, begin, fsa.num_rows, of_fsa,
                    of_fsa + fsa.num_states, checkpoints);
  }
}

// The part of an FSA's best path that a simdgroup has followed so far.
struct BestPath {
  device int *arcs;  // [params.num_rows]
  int time, state;   // where the part ends
};

// Follows the best path up to time `end`, or to where the path ends before.
// rows.At(t) has the backward scores of time t.  All simdgroups of the
// threadgroup do the same, so that all know the path's end.
template <typename Rows>
inline void Follow(constant CtcParams &params, Input input, Direction backward,
                   Rows rows, int end, thread BestPath &path) {
  const int none = 0x7fffffff, lane = input.thread_index % kCtcSimdWidth;
  bool has_arc = true;
  while (has_arc && path.time < end) {
    const auto now = rows.At(path.time), next = rows.At(path.time + 1);
    const int last = backward.arc_begins[path.state + 1];
    int found = none;
    for (int i = backward.arc_begins[path.state]; i < last && found == none;
         i += kCtcSimdWidth) {
      int mine = none;
      if (i + lane < last) {
        const Arc arc = input.arcs[i + lane - input.fsa.arc_begin];
        // The additions are those of MaxOfArcs(), in its order.
        if (next[arc.dest_state].r + arc.score +
                ScoreAt(params, input.b_scores, input.fsa.first_row + path.time,
                        arc.label) ==
            now[path.state].r)
          mine = i + lane;
      }
      found = simd_min(mine);
    }
    has_arc = found != none;
    if (has_arc) {
      if (input.thread_index == 0) path.arcs[path.time] = found;
      path.state = input.arcs[found - input.fsa.arc_begin].dest_state;
      ++path.time;
    }
  }
}

// Follows the best path through all blocks.
template <typename Memory>
inline void FollowBlocks(constant CtcParams &params, Input input,
                         Direction backward, device const BestScore *best,
                         Memory memory, thread BestPath &path) {
  const Fsa fsa = input.fsa;
  const int num_states = fsa.num_states, size = params.rows_of_best_block;
  KeepRows<decltype(memory.rows)> keep = {memory.rows, 0, 0, num_states};
  while (path.time < fsa.num_rows) {
    const int block = path.time / size,
              end = min((block + 1) * size, fsa.num_rows);
    keep.begin = path.time;
    keep.end = min(end + 1, path.time + memory.num_rows);
    if (end < fsa.num_rows) {
      Resume<BestScore>(
          input,
          best + RowsBegin(params, fsa, size, false) + (block + 1) * num_states,
          end, memory.sums, keep);
    } else {
      Begin<BestScore>(input, num_states - 1, end, memory.sums, keep);
    }
    Pass<BestScore>(params, input, backward, end, end - path.time, memory.sums,
                    memory.sums + num_states, keep);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    Follow(params, input, backward, keep, keep.end - 1, path);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    if (path.time < keep.end - 1) return;
  }
}

// best, best_totals   what ctc_best_scores wrote
// scratch    as for ctc_best_scores
// best_arcs  [params.num_fsas][params.num_rows], the arc of an FSA's best path
//            at each time if rounding may prune the path, else -1
//
// There is one threadgroup for each FSA.  Of equal arcs the path takes the
// first one, as in GetBestArcs() of k2/csrc/best_paths.h.
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_best_path(device const Arc *arcs [[buffer(0)]],
                          device const int *state_begins [[buffer(1)]],
                          device const int *leaving_begins [[buffer(2)]],
                          device const float *b_scores [[buffer(3)]],
                          device const int *b_begins [[buffer(4)]],
                          device const uchar *penalized [[buffer(5)]],
                          device const BestScore *best [[buffer(6)]],
                          device const float *best_totals [[buffer(7)]],
                          device BestScore *scratch [[buffer(8)]],
                          device int *best_arcs [[buffer(9)]],
                          constant CtcParams &params [[buffer(10)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint num_threads [[threads_per_threadgroup]]) {
  threadgroup BestScore memory[kCtcBestFloats];

  const Fsa fsa = GetFsa(int(group), state_begins, leaving_begins, b_begins);
  const Input input = GetInput(params, int(group), fsa, arcs, penalized,
                               b_scores, nullptr, thread_index, num_threads);
  BestPath path = {best_arcs + int(group) * params.num_rows, 0, 0};
  if (MayCutBestPath(best_totals[2 * group], best_totals[2 * group + 1],
                     fsa.num_rows, params.beam)) {
    const Direction backward = {leaving_begins + fsa.state_begin,
                                leaving_begins, false};
    const int of_sums = 4 * fsa.num_states,
              num_rows = (kCtcBestFloats - of_sums) / fsa.num_states;
    if (params.rows_of_best_block == 1) {
      const KeepRows<device const BestScore *> all = {
          best + RowsBegin(params, fsa, 1, false), 0, 0, fsa.num_states};
      Follow(params, input, backward, all, fsa.num_rows, path);
    } else if (num_rows > 1) {
      FollowBlocks(
          params, input, backward, best,
          BlockMemory<threadgroup BestScore *, threadgroup BestScore *>{
              memory, memory + of_sums, num_rows},
          path);
    } else {
      device BestScore *of_fsa =
          scratch + fsa.state_begin * (kCtcScratchRows + 4);
      FollowBlocks(params, input, backward, best,
                   BlockMemory<device BestScore *, device BestScore *>{
                       of_fsa, of_fsa + of_sums, kCtcScratchRows},
                   path);
    }
  }
  for (int i = path.time + int(thread_index); i < params.num_rows;
       i += int(num_threads))
    path.arcs[i] = -1;
}

// What KeepArcs() needs beside the scores of states.
struct Pruning {
  float cutoff;
  device const int *path;  // [params.num_rows], see best_arcs
  device uint *kept;
};

// Writes the words of `kept` of the row at time t.
//
// to_src, to_dest       forward scores at times t and t + 1
// from_src, from_dest   backward scores at times t and t + 1
template <typename Forward, typename Backward>
inline void KeepArcs(constant CtcParams &params, Input input, Pruning pruning,
                     int t, Forward to_src, Forward to_dest, Backward from_src,
                     Backward from_dest) {
  const Fsa fsa = input.fsa;
  const float cutoff = pruning.cutoff;
  device const int *path = pruning.path + t;
  const int best_arc = path[0] < 0 ? -1 : path[0] - fsa.arc_begin,
            before = t == 0 || path[-1] < 0 ? -1 : path[-1] - fsa.arc_begin;
  const int best_src = best_arc >= 0 ? input.arcs[best_arc].src_state
                       : before >= 0 ? input.arcs[before].dest_state
                                     : -1,
            best_dest = best_arc >= 0 ? input.arcs[best_arc].dest_state : -1;
  for (int i = input.thread_index;; i += input.num_threads) {
    // All lanes of a simdgroup go through this loop equally often.
    if (i / kCtcSimdWidth * kCtcSimdWidth >= fsa.num_arcs) break;
    bool keep = false;
    if (i < fsa.num_arcs) {
      const Arc arc = input.arcs[i];
      const float score = arc.score + ScoreAt(params, input.b_scores,
                                              fsa.first_row + t, arc.label);
      const int src = arc.src_state, dest = arc.dest_state;
      // The additions are k2's, in its order.
      keep =
          (to_src[src].r + from_src[src].r > cutoff || src == best_src) &&
          (to_dest[dest].r + from_dest[dest].r > cutoff || dest == best_dest) &&
          (to_src[src].r + score + from_dest[dest].r > cutoff || i == best_arc);
    }
    const uint bits = Ballot(keep);
    if (i % kCtcSimdWidth == 0)
      pruning
          .kept[t * params.num_words + input.first_word + i / kCtcSimdWidth] =
          bits;
  }
}

// A visitor of the backward pass that writes the words of `kept`: at time t
// those of the row that begins there.
template <typename Rows>
struct KeepArcsOfRows {
  constant CtcParams *params;
  Input input;
  Pruning pruning;
  KeepRows<Rows> forward;

  template <typename Scores>
  void Leave(int time, Scores from_src, Scores from_dest) const {
    // No row of this part begins at its last time.
    if (time + 1 == forward.end) return;
    KeepArcs(*params, input, pruning, time, forward.At(time),
             forward.At(time + 1), from_src, from_dest);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }

  void Take(int, int, BestScore) const {}

  template <typename Scores>
  void Finish(int time, Scores from_src, Scores from_dest) const {
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    Leave(time, from_src, from_dest);
  }
};

// best, best_totals   what ctc_best_scores wrote
// best_arcs           what ctc_best_path wrote
// scratch   as for ctc_best_scores
// kept      [params.num_rows][params.num_words], a bit for each arc
//
// There is one threadgroup for each block of params.rows_of_best_block rows. If
// threadgroup memory is too small for the scores of an FSA, the threadgroup of
// its first block does all blocks.
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_keep(device const Arc *arcs [[buffer(0)]],
                     device const int *state_begins [[buffer(1)]],
                     device const int *leaving_begins [[buffer(2)]],
                     device const int *incoming_begins [[buffer(3)]],
                     device const int *incoming [[buffer(4)]],
                     device const float *b_scores [[buffer(5)]],
                     device const int *b_begins [[buffer(6)]],
                     device const uchar *penalized [[buffer(7)]],
                     device const BestScore *best [[buffer(8)]],
                     device const float *best_totals [[buffer(9)]],
                     device const int *best_arcs [[buffer(10)]],
                     device BestScore *scratch [[buffer(11)]],
                     device uint *kept [[buffer(12)]],
                     constant CtcParams &params [[buffer(13)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]],
                     uint num_threads [[threads_per_threadgroup]]) {
  threadgroup BestScore memory[kCtcBestFloats];

  const int index = int(group) % params.num_fsas,
            block = int(group) / params.num_fsas,
            size = params.rows_of_best_block;
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  if (block * size >= fsa.num_rows || fsa.num_states == 0) return;
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               nullptr, thread_index, num_threads);
  const Direction forward = {incoming_begins + fsa.state_begin, incoming, true},
                  backward = {leaving_begins + fsa.state_begin, incoming,
                              false};
  const float start = best_totals[2 * index], end = best_totals[2 * index + 1];
  const Pruning pruning = {(start < end ? start : end) - params.beam,
                           best_arcs + index * params.num_rows, kept};
  const int num_states = fsa.num_states, of_sums = 4 * num_states,
            num_rows = (kCtcBestFloats - of_sums) / num_states;
  if (size == 1) {
    device const BestScore *to = best + RowsBegin(params, fsa, 1, true) +
                                 block * num_states,
                           *from = best + RowsBegin(params, fsa, 1, false) +
                                   block * num_states;
    KeepArcs(params, input, pruning, block, to, to + num_states, from,
             from + num_states);
  } else if (num_rows > 1) {
    const BlockMemory<threadgroup BestScore *, threadgroup BestScore *> here = {
        memory, memory + of_sums, num_rows};
    WalkBlocks<BestScore>(params, input, forward, backward, size, best, block,
                          block, 2, here,
                          KeepArcsOfRows<threadgroup BestScore *>{
                              &params, input, pruning, {here.rows, 0, 0, 0}});
  } else if (block == 0) {
    device BestScore *of_fsa =
        scratch + fsa.state_begin * (kCtcScratchRows + 4);
    const BlockMemory<device BestScore *, device BestScore *> there = {
        of_fsa, of_fsa + of_sums, kCtcScratchRows};
    WalkBlocks<BestScore>(params, input, forward, backward, size, best, 0,
                          (fsa.num_rows - 1) / size, 2, there,
                          KeepArcsOfRows<device BestScore *>{
                              &params, input, pruning, {there.rows, 0, 0, 0}});
  }
}
