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

#include "k2/csrc/mps/kernels/intersect_dense.h"

// The forward and the backward pass of MultiGraphDenseIntersect.
//
// An FSA depends on no other, and its forward pass not on its backward pass.
// So each pass of each FSA is one threadgroup, which goes through the frames
// by itself: a dispatch is all frames, or many of them.  A state takes the
// largest score of its arcs: in the forward pass those that enter it, in the
// backward pass those that leave it.  No order matters to that, so results are
// those of the CPU to the bit.
//
// `width` lanes share a state, where states have many arcs.  The first arcs of
// a thread's first state stay in registers, and what they need of a frame is
// loaded one frame ahead, since nothing else in a frame has to wait for device
// memory: FSAs with up to kIdMaxCachedStates states keep the scores of the
// frame before in threadgroup memory.

using namespace metal;

static_assert(2 * kIdMaxCachedStates * 4 <= 32768,
              "Metal's limit of threadgroup memory");

// As in k2/csrc/fsa.h.
struct Arc {
  int src_state, dest_state, label;
  float score;
};

// What one pass of one FSA reads.
struct Graph {
  device const Arc *arcs;        // of all FSAs
  device const int *arc_begins;  // of each state of this FSA
  device const int *entering;    // what they are into, if forward
  bool forward;                  // else they are into `arcs`
};

// The other end of an arc, its score and its column in b_scores.
struct Step {
  int other;
  float score;
  int column;
};

inline Step GetStep(Graph graph, int position) {
  const Arc arc =
      graph.arcs[graph.forward ? graph.entering[position] : position];
  // k2 keeps label + 1 in 16 bits.
  return Step{graph.forward ? arc.src_state : arc.dest_state, arc.score,
              (arc.label + 1) & 0xffff};
}

// Returns an element of the row of b_scores that begins at `row`.  As on the
// CPU, where a column just behind the last one is the next row's first.
inline float ScoreAt(constant IntersectDenseParams &params,
                     device const float *b_scores, int row, int column) {
  const int at = row + column;
  const bool exists = column <= params.num_columns && at < params.num_scores;
  const float score = b_scores[exists ? at : 0];
  return exists ? score : -INFINITY;
}

// NaN is never the largest.
inline float Larger(float x, float best) { return x > best ? x : best; }

// Returns the largest score of arcs number begin, begin + width, ... below end.
template <typename Scores>
inline float BestOfArcs(constant IntersectDenseParams &params,
                        device const float *b_scores, int row, Graph graph,
                        int begin, int end, Scores previous) {
  float best = -INFINITY;
  for (int i = begin; i < end; i += params.width) {
    const Step step = GetStep(graph, i);
    best = Larger(previous[step.other] + step.score +
                      ScoreAt(params, b_scores, row, step.column),
                  best);
  }
  return best;
}

// The largest of the lanes that share a state.
inline float BestOfLanes(float best, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2)
    best = Larger(simd_shuffle_xor(best, ushort(distance)), best);
  return best;
}

// arcs             [a.NumElements()]
// state_begins     [a.Dim0() + 1], the row splits of axis 1 of a
// leaving_begins   [a.TotSize(1) + 1], those of axis 2
// entering_begins  [a.TotSize(1) + 1], into `entering`
// entering         [a.NumElements()], arcs by the states that they enter
// b_scores         [frames][stride]
// b_begins         rows of b_scores where sequences begin, and one more
// a_to_b_map       [a.Dim0()], the sequence of an FSA
// step_begins      [frames of the longest + 1], where in state_scores the
//                  scores of a step are
// state_scores     of step t, for all FSAs whose sequence has t frames or
//                  more: backward scores of the FSA's states t frames before
//                  the end, then their forward scores after t frames
//
// There are two threadgroups for each FSA.  A dispatch whose first frame is not
// 0 goes on from the state_scores of that step.
[[max_total_threads_per_threadgroup(kIdMaxThreads)]]
kernel void intersect_dense(device const Arc *arcs [[buffer(0)]],
                            device const int *state_begins [[buffer(1)]],
                            device const int *leaving_begins [[buffer(2)]],
                            device const int *entering_begins [[buffer(3)]],
                            device const int *entering [[buffer(4)]],
                            device const float *b_scores [[buffer(5)]],
                            device const int *b_begins [[buffer(6)]],
                            device const int *a_to_b_map [[buffer(7)]],
                            device const long *step_begins [[buffer(8)]],
                            device float *state_scores [[buffer(9)]],
                            constant IntersectDenseParams &params
                            [[buffer(10)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint num_threads [[threads_per_threadgroup]]) {
  threadgroup float cache[2 * kIdMaxCachedStates];

  const int fsa = int(group / 2);
  const bool forward = group % 2 != 0;
  const int begin = state_begins[fsa],
            num_states = state_begins[fsa + 1] - begin;
  const Graph graph = {arcs,
                       (forward ? entering_begins : leaving_begins) + begin,
                       entering, forward};
  const int b = a_to_b_map[fsa], first_row = b_begins[b],
            num_frames = b_begins[b + 1] - first_row,
            first_frame = params.first_frame,
            last_frame = min(params.last_frame, num_frames);
  if (first_frame != 0 && first_frame >= num_frames) return;
  const bool cached = num_states <= kIdMaxCachedStates;
  const int width = params.width, lane = int(thread_index) % width,
            first_state = int(thread_index) / width,
            states_at_once = int(num_threads) / width;
  const int offset = 2 * begin + (forward ? num_states : 0);

  device float *scores = state_scores + step_begins[first_frame] + offset;
  const int initial = forward ? 0 : num_states - 1;
  for (int s = int(thread_index); s < num_states; s += int(num_threads)) {
    if (first_frame == 0) scores[s] = s == initial ? 0.0f : -INFINITY;
    if (cached) cache[first_frame % 2 * kIdMaxCachedStates + s] = scores[s];
  }

  // Of the thread's first state.
  const bool has_state = first_state < num_states;
  const int arc_begin = has_state ? graph.arc_begins[first_state] + lane : 0,
            arc_end = has_state ? graph.arc_begins[first_state + 1] : 0;
  Step steps[kIdArcsOfLane];
  float frame[kIdArcsOfLane];
  const int row_step = forward ? params.stride : -params.stride;
  int row = (forward ? first_row : first_row + num_frames - 1) * params.stride +
            first_frame * row_step;
  for (int i = 0; i < kIdArcsOfLane; ++i) {
    const int position = arc_begin + i * width;
    const Step none = {0, -INFINITY, 0};
    steps[i] = position < arc_end ? GetStep(graph, position) : none;
    frame[i] =
        num_frames > 0 ? ScoreAt(params, b_scores, row, steps[i].column) : 0.0f;
  }
  const int more_arcs = arc_begin + kIdArcsOfLane * width;

  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  for (int t = first_frame + 1; t <= last_frame; ++t) {
    device const float *previous = scores;
    threadgroup const float *cached_previous =
        cache + (t - 1) % 2 * kIdMaxCachedStates;
    threadgroup float *cached_scores = cache + t % 2 * kIdMaxCachedStates;
    scores = state_scores + step_begins[t] + offset;

    const int next_row = t < num_frames ? row + row_step : row;
    float next_frame[kIdArcsOfLane];
    for (int i = 0; i < kIdArcsOfLane; ++i)
      next_frame[i] = ScoreAt(params, b_scores, next_row, steps[i].column);

    float best = -INFINITY;
    for (int i = 0; i < kIdArcsOfLane; ++i) {
      const float before =
          cached ? cached_previous[steps[i].other] : previous[steps[i].other];
      best = Larger(before + steps[i].score + frame[i], best);
    }
    if (more_arcs < arc_end) {
      best = Larger(cached ? BestOfArcs(params, b_scores, row, graph, more_arcs,
                                        arc_end, cached_previous)
                           : BestOfArcs(params, b_scores, row, graph, more_arcs,
                                        arc_end, previous),
                    best);
    }
    // All lanes of a simdgroup go through this loop equally often.
    for (int s = first_state;;) {
      best = BestOfLanes(best, width);
      if (lane == 0 && s < num_states) {
        scores[s] = best;
        if (cached) cached_scores[s] = best;
      }
      s += states_at_once;
      if (s - first_state >= num_states) break;
      best = -INFINITY;
      if (s < num_states) {
        const int others_begin = graph.arc_begins[s] + lane,
                  others_end = graph.arc_begins[s + 1];
        best = cached ? BestOfArcs(params, b_scores, row, graph, others_begin,
                                   others_end, cached_previous)
                      : BestOfArcs(params, b_scores, row, graph, others_begin,
                                   others_end, previous);
      }
    }

    row = next_row;
    for (int i = 0; i < kIdArcsOfLane; ++i) frame[i] = next_frame[i];
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }
}
