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
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/kernels/simdgroup.h"

// Finds the batches of states of a lattice, and the arcs that enter each state.
// An arc leads from one time to the next, so the states of all FSAs at one time
// are a batch.  lattice.metal defines the word frame.

using namespace metal;

// Lists the arcs that enter each state, in the order of the lattice.  Each
// simdgroup processes one frame: it sorts the arcs that enter the frame by
// destination, with a counting sort that takes 32 arcs at a time.  If the arcs
// of several lanes have the same destination, the first of these lanes counts
// all these arcs.
//
// arcs           [num_arcs]
// frame_states   [num_fsas * num_steps + 1], where the states of each frame
//                begin
// frame_arcs     [num_fsas * num_steps + 1], where the arcs that leave each
//                frame begin
// next           [num_states], scratch
// row_splits     [num_states + 1], gets the position in `incoming` at which
//                the arcs that enter each state begin
// incoming       [num_arcs], gets the indexes of the arcs
[[max_total_threads_per_threadgroup(kLtFrameThreads)]]
kernel void incoming_arcs(device const Arc *arcs [[buffer(kBatchesArcs)]],
                          device const int *frame_states
                          [[buffer(kBatchesFrameStates)]],
                          device const int *frame_arcs
                          [[buffer(kBatchesFrameArcs)]],
                          device int *next [[buffer(kBatchesNext)]],
                          device int *row_splits [[buffer(kBatchesRowSplits)]],
                          device int *incoming [[buffer(kBatchesIncoming)]],
                          constant BatchesParams &params
                          [[buffer(kBatchesParams)]],
                          uint thread_index [[thread_position_in_grid]]) {
  const int frame = int(thread_index) / kSimdWidth,
            lane = int(thread_index) % kSimdWidth;
  if (frame >= params.num_fsas * params.num_steps) return;
  const int first_frame = frame - frame % params.num_steps;
  const int states_begin = frame_states[frame],
            num_states = frame_states[frame + 1] - states_begin,
            offset = frame_states[first_frame] - states_begin;
  const int begin = frame_arcs[frame == first_frame ? frame : frame - 1],
            end = frame_arcs[frame];
  device int *mine = next + states_begin;

  for (int s = lane; s < num_states; s += kSimdWidth) mine[s] = 0;
  simdgroup_barrier(mem_flags::mem_device);
  int place = begin;
  for (int pass = 0; pass < 2; ++pass) {
    for (int first = begin; first < end; first += kSimdWidth) {
      const int i = first + lane;
      const int state = i < end ? arcs[i].dest_state + offset : -1;
      uint same = 0;
      for (int j = 0; j < kSimdWidth; ++j)
        same |= uint(simd_broadcast(state, ushort(j)) == state) << j;
      const int before = int(popcount(Below(same, lane))),
                count = int(popcount(same));
      // All lanes read mine[state] before the first lane with this state writes
      // mine[state] below.
      const int from = state >= 0 ? mine[state] : 0;
      if (pass == 1 && state >= 0) incoming[from + before] = i;
      simdgroup_barrier(mem_flags::mem_device);
      if (state >= 0 && before == 0) mine[state] = from + count;
      simdgroup_barrier(mem_flags::mem_device);
    }
    if (pass == 0) {
      for (int first = 0; first < num_states; first += kSimdWidth) {
        const int s = first + lane;
        const int count = s < num_states ? mine[s] : 0;
        const int sum = simd_prefix_inclusive_sum(count);
        if (s < num_states) {
          mine[s] = place + sum - count;
          row_splits[states_begin + s] = place + sum - count;
        }
        place += simd_broadcast(sum, ushort(kSimdWidth - 1));
      }
      simdgroup_barrier(mem_flags::mem_device);
    }
  }
  if (frame == 0 && lane == 0) row_splits[params.num_states] = params.num_arcs;
}

// Computes the row splits of the batches, a ragged array indexed
// [time][FSA][state].
//
// frame_states  see incoming_arcs
// row_splits1   [num_steps + 1], the row splits of axis 1
// row_splits2   [num_steps * num_fsas + 1], the row splits of axis 2
//
// There is one threadgroup.
[[max_total_threads_per_threadgroup(kLtMaxThreads)]]
kernel void place_batches(
    device const int *frame_states [[buffer(kBatchesFrameStates)]],
    device int *row_splits1 [[buffer(kBatchesRowSplits1)]],
    device int *row_splits2 [[buffer(kBatchesRowSplits2)]],
    constant BatchesParams &params [[buffer(kBatchesParams)]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  threadgroup int sums[kLtMaxThreads];
  const int thread_id = int(thread_index), threads = int(num_threads);
  const int num_parts = params.num_steps * params.num_fsas;
  for (int i = thread_id; i <= params.num_steps; i += threads)
    row_splits1[i] = i * params.num_fsas;

  const int each = (num_parts + threads - 1) / threads,
            begin = min(thread_id * each, num_parts),
            end = min(begin + each, num_parts);
  int own = 0;
  // A part is the states of one FSA at one time.  The first pass adds up the
  // sizes of the thread's parts.  The second pass writes row_splits2.
  for (int pass = 0; pass < 2; ++pass) {
    int sum = pass == 0 ? 0 : sums[thread_id] - own;
    for (int i = begin; i < end; ++i) {
      const int fsa = i % params.num_fsas, t = i / params.num_fsas,
                frame = fsa * params.num_steps + t;
      if (pass == 1) row_splits2[i] = sum;
      sum += frame_states[frame + 1] - frame_states[frame];
    }
    if (pass == 1) break;
    own = sum;
    sums[thread_id] = own;
    PrefixSums(sums, thread_id, threads);
  }
  if (thread_id == threads - 1) row_splits2[num_parts] = params.num_states;
}

// Fills in the states of the batches.  Each simdgroup processes one frame.
//
// frame_states   see incoming_arcs
// row_splits2    see place_batches
// states         [num_states], gets the states of the batches
kernel void fill_batches(device const int *frame_states
                         [[buffer(kBatchesFrameStates)]],
                         device const int *row_splits2
                         [[buffer(kBatchesRowSplits2)]],
                         device int *states [[buffer(kBatchesStates)]],
                         constant BatchesParams &params
                         [[buffer(kBatchesParams)]],
                         uint thread_index [[thread_position_in_grid]]) {
  const int frame = int(thread_index) / kSimdWidth,
            lane = int(thread_index) % kSimdWidth;
  if (frame >= params.num_fsas * params.num_steps) return;
  const int fsa = frame / params.num_steps, t = frame % params.num_steps,
            begin = frame_states[frame], end = frame_states[frame + 1],
            at = row_splits2[t * params.num_fsas + fsa];
  for (int state = begin + lane; state < end; state += kSimdWidth)
    states[at + state - begin] = state;
}
