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
#include "k2/csrc/mps/kernels/arc_post.h"

// Total scores, posteriors of arcs, and their gradients.
//
// All sums are in an order that depends on the FSAs alone: two runs give the
// same bits.

using namespace metal;

static_assert(kApMaxThreads / kApSimdWidth <= kApSimdWidth,
              "one simdgroup adds up what all of a threadgroup found");

// Each FSA is a thread.
//
// state_begins     [num_fsas + 1], the row splits of axis 1 of the FSAs
// forward_scores   [num_states]
// tot_scores       [num_fsas]; -infinity where there is no state
kernel void tot_scores(device const int *state_begins [[buffer(0)]],
                       device const float *forward_scores [[buffer(1)]],
                       device float *tot_scores [[buffer(2)]],
                       constant ArcPostParams &params [[buffer(3)]],
                       uint i [[thread_position_in_grid]]) {
  if (int(i) >= params.num_fsas) return;
  const int end = state_begins[i + 1];
  tot_scores[i] = end > state_begins[i] ? forward_scores[end - 1] : -INFINITY;
}

// The gradient of total scores in the log semiring.  Each arc is a thread.
//
// arc_post         [num_arcs], logs
// src_states       [num_arcs], the idx01 of the state that each leaves
// fsas             [num_states], the FSA that each state is of
// tot_grad         [num_fsas], params.grad_stride elements apart
// arc_grad         [num_arcs], the gradient of the arcs' scores; all are
// written
kernel void tot_scores_backprop(device const float *arc_post [[buffer(0)]],
                                device const int *src_states [[buffer(1)]],
                                device const int *fsas [[buffer(2)]],
                                device const float *tot_grad [[buffer(3)]],
                                device float *arc_grad [[buffer(4)]],
                                constant ArcPostParams &params [[buffer(5)]],
                                uint i [[thread_position_in_grid]]) {
  if (int(i) >= params.num_arcs) return;
  const long fsa = fsas[src_states[i]];
  arc_grad[i] = precise::exp(arc_post[i]) * tot_grad[fsa * params.grad_stride];
}

// Each arc is a thread, which adds in the order in which the CPU does.
//
// arcs             [num_arcs]
// src_states, fsas, state_begins, forward_scores   as above
// backward_scores  [num_states]
// arc_post         [num_arcs]; all are written
kernel void arc_post(device const Arc *arcs [[buffer(0)]],
                     device const int *src_states [[buffer(1)]],
                     device const int *fsas [[buffer(2)]],
                     device const int *state_begins [[buffer(3)]],
                     device const float *forward_scores [[buffer(4)]],
                     device const float *backward_scores [[buffer(5)]],
                     device float *arc_post [[buffer(6)]],
                     constant ArcPostParams &params [[buffer(7)]],
                     uint i [[thread_position_in_grid]]) {
  if (int(i) >= params.num_arcs) return;
  const Arc arc = arcs[i];
  const int src = src_states[i], fsa = fsas[src], begin = state_begins[fsa],
            last = state_begins[fsa + 1] - 1;
  const float tot = 0.5f * (forward_scores[last] + backward_scores[begin]);
  // An FSA without a path has arcs of -inf, not NaN.
  const float minus_tot = tot == -INFINITY ? -INFINITY : -tot;
  arc_post[i] = arc.score + forward_scores[src] +
                backward_scores[begin + arc.dest_state] + minus_tot;
}

// The arcs of states: those at begins[s]..begins[s + 1] - 1 of a list, or of
// all arcs if there is no list.
struct ArcsOfStates {
  device const int *begins;
  device const int *list;
  bool has_list;
};

inline float GradOf(ArcsOfStates arcs, int position,
                    device const float *arc_grad) {
  return arc_grad[arcs.has_list ? arcs.list[position] : position];
}

// The sum over the lanes of a simdgroup, which all of them get.
inline float SumOfLanes(float sum) {
  for (int distance = kApSimdWidth / 2; distance > 0; distance /= 2)
    sum += simd_shuffle_xor(sum, ushort(distance));
  return sum;
}

// Returns the sum over the arcs of a state, zero if it is negative.  All lanes
// of a simdgroup call this together.
inline float SumOfState(ArcsOfStates arcs, int state,
                        device const float *arc_grad, int lane) {
  const int begin = state >= 0 ? arcs.begins[state] : 0,
            end = state >= 0 ? arcs.begins[state + 1] : 0;
  const bool is_long = end - begin > kApArcsOfThread;
  float sum = 0.0f;
  if (!is_long)
    for (int i = begin; i < end; ++i) sum += GradOf(arcs, i, arc_grad);
  if (!simd_any(is_long)) return sum;

  for (int owner = 0; owner < kApSimdWidth; ++owner) {
    const int its_begin = simd_shuffle(begin, ushort(owner)),
              its_end = simd_shuffle(end, ushort(owner));
    if (its_end - its_begin <= kApArcsOfThread) continue;
    float part = 0.0f;
    for (int i = its_begin + lane; i < its_end; i += kApSimdWidth)
      part += GradOf(arcs, i, arc_grad);
    part = SumOfLanes(part);
    if (lane == owner) sum = part;
  }
  return sum;
}

// The gradient of what arc_post does for the scores of states.  For those of
// arcs it is arc_grad itself.
//
// A state's forward score counts in the arcs that leave it, its backward score
// in those that enter it.  The forward score of an FSA's final state and the
// backward score of its initial state count as its total score instead, by one
// half each, in all of its arcs.
//
// arc_grad         [num_arcs], the gradient of `arc_post`
// fsas, state_begins   as above
// leaving_begins   [num_states + 1], the row splits of axis 2 of the FSAs
// entering_begins  [num_states + 1], into `entering`
// entering         [num_arcs], arcs by the states that they enter
// forward_grad     [num_states], the gradient of the forward scores; all are
//                  written
// backward_grad    [num_states], that of the backward scores; as well
//
// There is one threadgroup for each FSA, which writes what comes from its total
// score, and behind them those that have a thread for each state.  Threadgroups
// consist of whole simdgroups.
[[max_total_threads_per_threadgroup(kApMaxThreads)]]
kernel void arc_post_backprop(device const float *arc_grad [[buffer(0)]],
                              device const int *fsas [[buffer(1)]],
                              device const int *state_begins [[buffer(2)]],
                              device const int *leaving_begins [[buffer(3)]],
                              device const int *entering_begins [[buffer(4)]],
                              device const int *entering [[buffer(5)]],
                              device float *forward_grad [[buffer(6)]],
                              device float *backward_grad [[buffer(7)]],
                              constant ArcPostParams &params [[buffer(8)]],
                              uint group [[threadgroup_position_in_grid]],
                              uint thread_index [[thread_index_in_threadgroup]],
                              uint num_threads [[threads_per_threadgroup]]) {
  threadgroup float sums[kApMaxThreads / kApSimdWidth];

  const int lane = int(thread_index) % kApSimdWidth,
            simdgroup = int(thread_index) / kApSimdWidth,
            num_simdgroups = int(num_threads) / kApSimdWidth;
  if (int(group) < params.num_fsas) {
    const int begin = state_begins[group], end = state_begins[group + 1];
    const int arcs_begin = leaving_begins[begin],
              arcs_end = leaving_begins[end];
    float sum = 0.0f;
    for (int i = arcs_begin + int(thread_index); i < arcs_end;
         i += int(num_threads))
      sum += arc_grad[i];
    sum = SumOfLanes(sum);
    if (lane == 0) sums[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup != 0 || begin == end) return;
    sum = SumOfLanes(lane < num_simdgroups ? sums[lane] : 0.0f);
    if (lane == 0) {
      forward_grad[end - 1] = -0.5f * sum;
      backward_grad[begin] = -0.5f * sum;
    }
    return;
  }

  const int at = (int(group) - params.num_fsas) * int(num_threads) +
                 int(thread_index),
            state = at < params.num_states ? at : -1;
  const float forward = SumOfState({leaving_begins, entering, false}, state,
                                   arc_grad, lane),
              backward = SumOfState({entering_begins, entering, true}, state,
                                    arc_grad, lane);
  if (state < 0) return;
  const int fsa = fsas[state];
  if (state != state_begins[fsa + 1] - 1) forward_grad[state] = forward;
  if (state != state_begins[fsa]) backward_grad[state] = backward;
}
