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
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/kernels/simdgroup.h"

// The best paths of CTC's lattice, and the arcs that the lattice keeps; see
// ctc_pass.h.

using namespace metal;

static_assert(4 * kCtcBestFloats <= 32768,
              "Metal's limit of threadgroup memory");

// A visitor of Pass() that keeps the checkpoints and the score of the best
// path.
struct BestCheckpoints {
  device BestScore *best;
  Checkpoints checkpoints;
  int last_row, final_state;
  device float *total;

  template <typename Sums>
  void Leave(int, Sums, Sums) const {}

  void Take(int row, int s, BestScore score) const {
    if (checkpoints.Has(row)) best[checkpoints.Of(row) + s] = score;
    if (row == last_row && s == final_state) *total = score.max;
  }
};

// best             the checkpoints, one for each params.rows_of_best_block
//                  rows
// scratch          [params.num_states * (kCtcScratchRows + 4)], for FSAs
//                  with many states
// best_totals      [params.num_fsas][2], the score of an FSA's best path: first
//                  the backward pass's result, then the forward pass's result
//
// Each FSA has two threadgroups, one for each direction.  A threadgroup has at
// most kThreads threads.
template <int kThreads>
[[max_total_threads_per_threadgroup(kThreads)]]
kernel void ctc_best_scores(K2_CTC_INPUTS,
                            device BestScore *best [[buffer(kCtcBest)]],
                            device BestScore *scratch [[buffer(kCtcScratch)]],
                            device float *best_totals
                            [[buffer(kCtcBestTotals)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint num_threads [[threads_per_threadgroup]]) {
  threadgroup BestScore cache[2 * CachedStates(kThreads)];

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
  const int last_state = fsa.num_states - 1, size = params.rows_of_best_block,
            initial = forward ? 0 : last_state,
            begin = forward ? 0 : fsa.num_rows;
  const BestCheckpoints checkpoints = {
      best,
      {CheckpointsBegin(params, fsa, size, forward), fsa.num_states, size},
      forward ? fsa.num_rows : 0,
      forward ? last_state : 0,
      best_totals + group};
  if (fsa.num_states <= CachedStates(kThreads)) {
    threadgroup BestScore *first = cache,
                          *second = cache + CachedStates(kThreads);
    Begin<BestScore>(input, initial, begin, first, checkpoints);
    Pass<BestScore, kCtcBestRowsAhead>(params, input, direction, begin,
                                       fsa.num_rows, first, second,
                                       checkpoints);
  } else {
    device BestScore *of_fsa =
        scratch + 4 * fsa.state_begin + (forward ? 2 * fsa.num_states : 0);
    Begin<BestScore>(input, initial, begin, of_fsa, checkpoints);
    Pass<BestScore, kCtcBestRowsAhead>(params, input, direction, begin,
                                       fsa.num_rows, of_fsa,
                                       of_fsa + fsa.num_states, checkpoints);
  }
}

template [[host_name("ctc_best_scores_256")]] [[kernel]]
decltype(ctc_best_scores<256>) ctc_best_scores<256>;
template [[host_name("ctc_best_scores_512")]] [[kernel]]
decltype(ctc_best_scores<512>) ctc_best_scores<512>;
template [[host_name("ctc_best_scores_1024")]] [[kernel]]
decltype(ctc_best_scores<1024>) ctc_best_scores<1024>;

// The part of an FSA's best path that a simdgroup has followed.
struct BestPath {
  device int *arcs;  // [params.num_rows]
  int row, state;    // the row and the state that the simdgroup has reached
};

// Follows the best path up to row `end`, or to the path's end if the path
// ends before `end`.  rows.At(t) has the backward scores of row t.  All
// simdgroups of the threadgroup do the same work, so that `path` is the same in
// all simdgroups.
template <typename Rows>
inline void Follow(constant CtcParams &params, Input input, Direction backward,
                   Rows rows, int end, thread BestPath &path) {
  const int none = 0x7fffffff, lane = input.thread_index % kSimdWidth;
  bool has_arc = true;
  while (has_arc && path.row < end) {
    const auto now = rows.At(path.row), next = rows.At(path.row + 1);
    const int last = backward.arc_begins[path.state + 1];
    int found = none;
    for (int i = backward.arc_begins[path.state]; i < last && found == none;
         i += kSimdWidth) {
      int mine = none;
      if (i + lane < last) {
        const Arc arc = input.arcs[i + lane - input.fsa.arc_begin];
        // The additions are in the order of Magnitude() in ctc_pass.h, so that
        // the sum for an arc of the best path is equal to the state's score.
        if (next[arc.dest_state].max + arc.score +
                ScoreAt(params, input.b_scores,
                        input.fsa.first_row + path.row, arc.label) ==
            now[path.state].max)
          mine = i + lane;
      }
      found = simd_min(mine);
    }
    has_arc = found != none;
    if (has_arc) {
      if (input.thread_index == 0) path.arcs[path.row] = found;
      path.state = input.arcs[found - input.fsa.arc_begin].dest_state;
      ++path.row;
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
  while (path.row < fsa.num_rows) {
    const int block = path.row / size,
              end = min((block + 1) * size, fsa.num_rows);
    keep.begin = path.row;
    keep.end = min(end + 1, path.row + memory.num_rows);
    if (end < fsa.num_rows) {
      Resume<BestScore>(input,
                        best + CheckpointsBegin(params, fsa, size, false) +
                            (block + 1) * num_states,
                        end, memory.sums, keep);
    } else {
      Begin<BestScore>(input, num_states - 1, end, memory.sums, keep);
    }
    Pass<BestScore, 1>(params, input, backward, end, end - path.row,
                       memory.sums, memory.sums + num_states, keep);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    Follow(params, input, backward, keep, keep.end - 1, path);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    if (path.row < keep.end - 1) return;
  }
}

// best, best_totals   what ctc_best_scores wrote
// scratch    as for ctc_best_scores
// best_arcs  [params.num_fsas][params.num_rows], the arc of an FSA's best
//            path in each row; -1 after the path's end.  If rounding cannot
//            prune the path, -1 in all rows
//
// There is one threadgroup for each FSA.  If several arcs are equally good, the
// path takes the first one, as in GetBestArcs() of k2/csrc/intersect_dense.cu.
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_best_path(K2_CTC_INPUTS,
                          device const BestScore *best [[buffer(kCtcBest)]],
                          device const float *best_totals
                          [[buffer(kCtcBestTotals)]],
                          device BestScore *scratch [[buffer(kCtcScratch)]],
                          device int *best_arcs [[buffer(kCtcBestArcs)]],
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
          best + CheckpointsBegin(params, fsa, 1, false), 0, 0, fsa.num_states};
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
  for (int i = path.row + int(thread_index); i < params.num_rows;
       i += int(num_threads))
    path.arcs[i] = -1;
}

// What KeepArcs() needs in addition to the scores of states.
struct Pruning {
  float cutoff;
  device const int *path;  // [params.num_rows], see best_arcs
  device uint *kept;
};

// Writes the words of `kept` that belong to row t.
//
// to_src, to_dest       forward scores in rows t and t + 1
// from_src, from_dest   backward scores in rows t and t + 1
template <typename Forward, typename Backward>
inline void KeepArcs(constant CtcParams &params, Input input, Pruning pruning,
                     int t, Forward to_src, Forward to_dest, Backward from_src,
                     Backward from_dest) {
  const Fsa fsa = input.fsa;
  const float cutoff = pruning.cutoff;
  device const int *path = pruning.path + t;
  // The best path's arcs in row t and in the row before, or -1.
  const int best_arc = path[0] < 0 ? -1 : path[0] - fsa.arc_begin,
            arc_before = t == 0 || path[-1] < 0 ? -1 : path[-1] - fsa.arc_begin;
  // The best path's states in rows t and t + 1, or -1.  At the path's end, only
  // arc_before tells the state.
  const int best_src = best_arc >= 0     ? input.arcs[best_arc].src_state
                       : arc_before >= 0 ? input.arcs[arc_before].dest_state
                                         : -1,
            best_dest = best_arc >= 0 ? input.arcs[best_arc].dest_state : -1;
  for (int i = input.thread_index;; i += input.num_threads) {
    // All lanes of a simdgroup run this loop the same number of times.
    if (i / kSimdWidth * kSimdWidth >= fsa.num_arcs) break;
    bool keep = false;
    if (i < fsa.num_arcs) {
      const Arc arc = input.arcs[i];
      const float score = arc.score + ScoreAt(params, input.b_scores,
                                              fsa.first_row + t, arc.label);
      const int src = arc.src_state, dest = arc.dest_state;
      // The additions are in the order of k2's CPU code, so that rounding does
      // not change which arcs are kept.
      keep =
          (to_src[src].max + from_src[src].max > cutoff || src == best_src) &&
          (to_dest[dest].max + from_dest[dest].max > cutoff ||
           dest == best_dest) &&
          (to_src[src].max + score + from_dest[dest].max > cutoff ||
           i == best_arc);
    }
    const uint bits = Ballot(keep);
    if (i % kSimdWidth == 0)
      pruning
          .kept[t * params.num_words + input.first_word + i / kSimdWidth] =
          bits;
  }
}

// A visitor of the backward pass.  The visitor writes those words of `kept`
// that belong to the row that the pass has reached.
template <typename Rows>
struct KeepArcsOfRows {
  constant CtcParams *params;
  Input input;
  Pruning pruning;
  KeepRows<Rows> forward;

  template <typename Scores>
  void Leave(int row, Scores from_src, Scores from_dest) const {
    // The words of the row in which the pass begins are not written here,
    // because they depend on forward scores of the next row, which `forward`
    // does not have.
    if (row + 1 == forward.end) return;
    KeepArcs(*params, input, pruning, row, forward.At(row),
             forward.At(row + 1), from_src, from_dest);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }

  void Take(int, int, BestScore) const {}

  template <typename Scores>
  void Finish(int row, Scores from_src, Scores from_dest) const {
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    Leave(row, from_src, from_dest);
  }
};

// best, best_totals   what ctc_best_scores wrote
// best_arcs           what ctc_best_path wrote
// scratch   as for ctc_best_scores
// kept      [params.num_rows][params.num_words], a bit for each arc
//
// There is one threadgroup for each block of each FSA.  A block has
// params.rows_of_best_block rows.  If threadgroup memory is too small for
// the scores of an FSA, the threadgroup of the FSA's first block processes all
// blocks of the FSA.
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_keep(K2_CTC_INPUTS,
                     device const BestScore *best [[buffer(kCtcBest)]],
                     device const float *best_totals [[buffer(kCtcBestTotals)]],
                     device const int *best_arcs [[buffer(kCtcBestArcs)]],
                     device BestScore *scratch [[buffer(kCtcScratch)]],
                     device uint *kept [[buffer(kCtcKept)]],
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
    device const BestScore *to = best + CheckpointsBegin(params, fsa, 1, true) +
                                 block * num_states,
                           *from = best +
                                   CheckpointsBegin(params, fsa, 1, false) +
                                   block * num_states;
    KeepArcs(params, input, pruning, block, to, to + num_states, from,
             from + num_states);
  } else if (num_rows > 1) {
    const BlockMemory<threadgroup BestScore *, threadgroup BestScore *>
        in_threadgroup = {memory, memory + of_sums, num_rows};
    WalkBlocks<BestScore>(
        params, input, forward, backward, size, best, block, block, 2,
        in_threadgroup,
        KeepArcsOfRows<threadgroup BestScore *>{
            &params, input, pruning, {in_threadgroup.rows, 0, 0, 0}});
  } else if (block == 0) {
    device BestScore *of_fsa =
        scratch + fsa.state_begin * (kCtcScratchRows + 4);
    const BlockMemory<device BestScore *, device BestScore *> in_device = {
        of_fsa, of_fsa + of_sums, kCtcScratchRows};
    WalkBlocks<BestScore>(
        params, input, forward, backward, size, best, 0,
        (fsa.num_rows - 1) / size, 2, in_device,
        KeepArcsOfRows<device BestScore *>{
            &params, input, pruning, {in_device.rows, 0, 0, 0}});
  }
}
