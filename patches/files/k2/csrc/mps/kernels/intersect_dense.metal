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
#include "k2/csrc/mps/kernels/intersect_dense.h"

// The forward and the backward pass of MultiGraphDenseIntersect.
//
// In the forward pass, a state's score is the largest score of the arcs that
// enter the state.  In the backward pass, a state's score is the largest score
// of the arcs that leave the state.  The order of the arcs does not change a
// maximum, so the scores equal the CPU's scores bit for bit.
//
// One threadgroup does one pass of one FSA: it goes through the rows, and
// never waits for another threadgroup.  `width` lanes share a state, so that a
// state with many arcs does not take much longer than others.
//
// Two measures save time in each row.  If an FSA has at most
// kIdMaxCachedStates states, threadgroup memory keeps the scores of the
// previous row.  A lane keeps the first arcs of its first state in registers,
// and loads these arcs' elements of b_scores one row ahead.

using namespace metal;

static_assert(2 * kIdMaxCachedStates * 4 <= 32768,
              "Metal's limit of threadgroup memory");

// The part of the graphs that one pass of one FSA reads.
struct Graph {
  device const Arc *arcs;        // of all FSAs
  device const int *arc_begins;  // where the arcs of each state of this FSA
                                 // begin: in `incoming` (forward) or in `arcs`
  device const int *incoming;    // used in the forward pass only
  bool forward;
};

// The work of a lane.  The lane shares the states first_state, first_state +
// states_at_once, ... with the other lanes of a group of `width` lanes.
struct Lane {
  int first_state, states_at_once;
  int index, width;  // the index of the lane in its group, and the group's size
};

// An arc of the state whose score is computed: the state at the arc's other
// end, the arc's score, and its column in b_scores.
struct Step {
  int other;
  float score;
  int column;
};

inline Step GetStep(Graph graph, int position) {
  const Arc arc =
      graph.arcs[graph.forward ? graph.incoming[position] : position];
  return Step{graph.forward ? arc.src_state : arc.dest_state, arc.score,
              ColumnOf(arc)};
}

// Returns an element of the row of b_scores that begins at `row`.
inline float ScoreAt(constant IntersectDenseParams &params,
                     device const float *b_scores, int row, int column) {
  const bool exists = column < params.num_columns;
  const float score = b_scores[exists ? row + column : 0];
  return exists ? score : -INFINITY;
}

// Returns the larger number.  If x is NaN, returns `best`.
inline float Larger(float x, float best) { return x > best ? x : best; }

// The scores of an FSA's states at one time.
struct Scores {
  device float *states;
  threadgroup float *cache;  // a copy, if is_cached
  bool is_cached;

  float Get(int state) const {
    return is_cached ? cache[state] : states[state];
  }
  void Set(int state, float score) const {
    states[state] = score;
    if (is_cached) cache[state] = score;
  }
};

// Returns the largest score of the arcs at positions begin, begin + width, ...
// below `end`.
inline float BestOfArcs(constant IntersectDenseParams &params,
                        device const float *b_scores, int row, Graph graph,
                        int begin, int end, int width, Scores previous) {
  float best = -INFINITY;
  for (int i = begin; i < end; i += width) {
    const Step step = GetStep(graph, i);
    best = Larger(previous.Get(step.other) + step.score +
                      ScoreAt(params, b_scores, row, step.column),
                  best);
  }
  return best;
}

// Returns the largest `best` of the lanes that share a state.
inline float BestOfLanes(float best, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2)
    best = Larger(simd_shuffle_xor(best, ushort(distance)), best);
  return best;
}

// The first arcs of a lane's first state.
struct FirstArcs {
  Step steps[kIdArcsOfLane];
  float columns[kIdArcsOfLane];  // the arcs' elements of the row
  // The lane's other arcs are at positions more, more + width, ... below `end`.
  int more, end;
};

inline FirstArcs GetFirstArcs(Graph graph, int num_states, Lane lane) {
  const int state = lane.first_state;
  const bool exists = state < num_states;
  const int begin = exists ? graph.arc_begins[state] + lane.index : 0;
  FirstArcs ans;
  ans.end = exists ? graph.arc_begins[state + 1] : 0;
  ans.more = begin + kIdArcsOfLane * lane.width;
  for (int i = 0; i < kIdArcsOfLane; ++i) {
    const int position = begin + i * lane.width;
    const Step none = {0, -INFINITY, 0};
    ans.steps[i] = position < ans.end ? GetStep(graph, position) : none;
  }
  return ans;
}

// Computes the scores of the states after one row of b_scores, which begins at
// `row`.
inline void DoRow(constant IntersectDenseParams &params,
                  device const float *b_scores, int row, Graph graph,
                  thread const FirstArcs &first, int num_states, Lane lane,
                  Scores previous, Scores next) {
  float best = -INFINITY;
  for (int i = 0; i < kIdArcsOfLane; ++i)
    best = Larger(previous.Get(first.steps[i].other) + first.steps[i].score +
                      first.columns[i],
                  best);
  best = Larger(BestOfArcs(params, b_scores, row, graph, first.more, first.end,
                           lane.width, previous),
                best);
  // All lanes of a simdgroup run this loop the same number of times, because
  // BestOfLanes() needs all lanes.
  for (int s = lane.first_state;;) {
    best = BestOfLanes(best, lane.width);
    if (lane.index == 0 && s < num_states) next.Set(s, best);
    s += lane.states_at_once;
    if (s - lane.first_state >= num_states) break;
    best = s < num_states
               ? BestOfArcs(params, b_scores, row, graph,
                            graph.arc_begins[s] + lane.index,
                            graph.arc_begins[s + 1], lane.width, previous)
               : -INFINITY;
  }
}

// arcs             [a.NumElements()]
// state_begins     [a.Dim0() + 1], the row splits of axis 1 of a
// leaving_begins   [a.TotSize(1) + 1], the row splits of axis 2 of a
// incoming_begins  [a.TotSize(1) + 1], where the arcs that enter each state
//                  begin in `incoming`
// incoming         [a.NumElements()], the indexes of the arcs, sorted by the
//                  states that they enter
// b_scores         [rows][stride]
// b_begins         [sequences + 1], the row of b_scores where each sequence
//                  begins
// a_to_b_map       [a.Dim0()], the sequence of each FSA
// state_scores     [rows of the longest sequence + 1][2 * params.num_states].
//                  Row t has two parts for each FSA whose sequence has at least
//                  t rows.  The first part has the backward scores of the FSA's
//                  states, t rows before the end of the sequence.  The second
//                  part has the forward scores of the states, after t rows
//
// There are two threadgroups for each FSA.  If the first row of a dispatch is
// not 0, the dispatch continues from that row of state_scores.
[[max_total_threads_per_threadgroup(kIdMaxThreads)]]
kernel void intersect_dense(
    device const Arc *arcs [[buffer(kIdArcs)]],
    device const int *state_begins [[buffer(kIdStateBegins)]],
    device const int *leaving_begins [[buffer(kIdLeavingBegins)]],
    device const int *incoming_begins [[buffer(kIdIncomingBegins)]],
    device const int *incoming [[buffer(kIdIncoming)]],
    device const float *b_scores [[buffer(kIdBScores)]],
    device const int *b_begins [[buffer(kIdBBegins)]],
    device const int *a_to_b_map [[buffer(kIdAToBMap)]],
    device float *state_scores [[buffer(kIdStateScores)]],
    constant IntersectDenseParams &params [[buffer(kIdParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  threadgroup float cache[2 * kIdMaxCachedStates];

  const int fsa = int(group / 2);
  const bool forward = group % 2 != 0;
  const int begin = state_begins[fsa],
            num_states = state_begins[fsa + 1] - begin;
  const Graph graph = {arcs,
                       (forward ? incoming_begins : leaving_begins) + begin,
                       incoming, forward};
  const int b = a_to_b_map[fsa], rows_begin = b_begins[b],
            num_rows = b_begins[b + 1] - rows_begin,
            first_row = params.first_row,
            last_row = min(params.last_row, num_rows);
  if (num_states == 0 || (first_row != 0 && first_row >= num_rows))
    return;
  const bool cached = num_states <= kIdMaxCachedStates;
  device float *of_fsa = state_scores + 2 * begin + (forward ? num_states : 0);
  const long of_step = 2 * long(params.num_states);
  const int initial = forward ? 0 : num_states - 1, width = params.width;
  const Lane lane = {int(thread_index) / width, int(num_threads) / width,
                     int(thread_index) % width, width};

  Scores scores = {of_fsa + first_row * of_step,
                   cache + first_row % 2 * kIdMaxCachedStates, cached};
  for (int s = int(thread_index); s < num_states; s += int(num_threads)) {
    if (first_row == 0)
      scores.Set(s, s == initial ? 0.0f : -INFINITY);
    else if (cached)
      scores.cache[s] = scores.states[s];
  }
  FirstArcs first = GetFirstArcs(graph, num_states, lane);
  const int row_step = forward ? params.stride : -params.stride;
  int row = (forward ? rows_begin : rows_begin + num_rows - 1) * params.stride +
            first_row * row_step;
  for (int i = 0; i < kIdArcsOfLane; ++i)
    first.columns[i] =
        num_rows > 0 ? ScoreAt(params, b_scores, row, first.steps[i].column)
                       : 0.0f;

  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  for (int t = first_row + 1; t <= last_row; ++t) {
    const Scores next = {of_fsa + t * of_step,
                         cache + t % 2 * kIdMaxCachedStates, cached};
    const int next_row = t < num_rows ? row + row_step : row;
    float ahead[kIdArcsOfLane];
    for (int i = 0; i < kIdArcsOfLane; ++i)
      ahead[i] = ScoreAt(params, b_scores, next_row, first.steps[i].column);
    DoRow(params, b_scores, row, graph, first, num_states, lane, scores, next);
    for (int i = 0; i < kIdArcsOfLane; ++i) first.columns[i] = ahead[i];
    row = next_row;
    scores = next;
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }
}
