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
#include "k2/csrc/mps/kernels/log_add.h"
#include "k2/csrc/mps/kernels/scores.h"

// The scores of states and their derivatives, by batches of states: no state
// depends on another one of its batch.
//
// An FSA depends on no other: one threadgroup goes through the batches of one
// FSA by itself, with a barrier in between, so that all batches are one
// dispatch.  A thread does a state, pulling over its arcs in the order in which
// the CPU does: two runs give the same bits, and in the tropical semiring they
// are the CPU's.
//
// What a state has to load before it can look at a score is a chain: where the
// batch begins, which state, where its arcs begin, the arcs.  gather_arcs
// brings the last of these into the order in which they are needed, and each
// link of the chain is loaded one batch ahead of the next.

using namespace metal;

// An arc as seen from the state that pulls over it.
struct Link {
  int state;  // at the other end, an idx01
  float score;
};

// arcs       [num_arcs]
// src_states [num_arcs], the idx01 of the state that each leaves
// list       [num_arcs], indexes of arcs
// links      [num_arcs], those of `list`
kernel void gather_arcs(device const Arc *arcs [[buffer(0)]],
                        device const int *src_states [[buffer(1)]],
                        device const int *list [[buffer(2)]],
                        device Link *links [[buffer(3)]],
                        constant ScoresParams &params [[buffer(4)]],
                        uint i [[thread_position_in_grid]]) {
  if (int(i) >= params.num_arcs) return;
  const int index = list[i];
  const Arc arc = arcs[index];
  const int src = src_states[index];
  links[i] = Link{params.to_src ? src : src - arc.src_state + arc.dest_state,
                  arc.score};
}

// Batches of states, and the arcs of each state.
struct Batches {
  device const int *begins;      // [num_batches * num_fsas + 1], into states
  device const int *states;      // [num_states], an idx01
  device const int *arc_begins;  // [num_states + 1], into links
  int num_fsas, num_batches, fsa;
  bool descending;
};

// The part of a batch that belongs to the FSA.
struct Range {
  int begin, end;
};

// A state, which has arcs begin..end - 1; none if state is negative.
struct Node {
  int state, begin, end;
};

// Number n of the batches as they come; empty behind the last one.
inline Range GetBatch(Batches batches, int n) {
  if (n >= batches.num_batches) return Range{0, 0};
  const int at = (batches.descending ? batches.num_batches - 1 - n : n) *
                     batches.num_fsas +
                 batches.fsa;
  return Range{batches.begins[at], batches.begins[at + 1]};
}

inline Node GetNode(Batches batches, Range range, int index) {
  const int at = range.begin + index;
  if (at >= range.end) return Node{-1, 0, 0};
  return Node{batches.states[at], batches.arc_begins[at],
              batches.arc_begins[at + 1]};
}

// The first arcs of a state.
struct Links {
  Link of[kScArcsAhead];
};

inline Links GetLinks(device const Link *links, Node node) {
  Links ans;
  for (int i = 0; i < kScArcsAhead; ++i) {
    const int at = node.begin + i;
    // Never looked at if there is no such arc.
    ans.of[i] = at < node.end ? links[at] : Link{0, 0.0f};
  }
  return ans;
}

// What a thread has loaded ahead: its state of this batch with its arcs, its
// state of the next one, and where the one after that lies.
struct Ahead {
  Range range, next_range, later_range;
  Node node, next_node;
  Links links;
};

inline Ahead Begin(Batches batches, device const Link *links,
                   int thread_index) {
  Ahead ans;
  ans.range = GetBatch(batches, 0);
  ans.next_range = GetBatch(batches, 1);
  ans.later_range = GetBatch(batches, 2);
  ans.node = GetNode(batches, ans.range, thread_index);
  ans.next_node = GetNode(batches, ans.next_range, thread_index);
  ans.links = GetLinks(links, ans.node);
  return ans;
}

// To batch n + 1.
inline Ahead Advance(Batches batches, device const Link *links,
                     int thread_index, int n, Ahead ahead) {
  Ahead ans;
  ans.range = ahead.next_range;
  ans.next_range = ahead.later_range;
  ans.later_range = GetBatch(batches, n + 3);
  ans.node = ahead.next_node;
  ans.next_node = GetNode(batches, ans.next_range, thread_index);
  ans.links = GetLinks(links, ans.node);
  return ans;
}

// The sum over a state's arcs, in their order, and which was the best.
struct Sum {
  float score;
  int best;  // position of the arc, -1 if there is none
};

// Of equal arcs the last one is the best, if that is asked for; else the first
// one is kept, as by the CPU.
inline Sum Add(constant ScoresParams &params, Sum sum, float score,
               int position) {
  if (params.log_semiring) return Sum{LogAdd(score, sum.score), -1};
  const bool is_better =
      score > sum.score || (params.has_best_arcs && score == sum.score);
  return is_better ? Sum{score, position} : sum;
}

// Forward scores of states from the arcs that enter them, or backward scores
// from those that leave them.
//
// state_begins  [num_fsas + 1], the row splits of axis 1 of the FSAs
// batch_begins, states, arc_begins   see Batches
// list          [num_arcs], indexes of arcs, for best_arcs
// links         [num_arcs], see gather_arcs
// scores        [num_states]; all are written
// best_arcs     [num_states], the index of the best arc of each state, -1 if it
//               has none; only if params.has_best_arcs
//
// There is one threadgroup for each FSA.
[[max_total_threads_per_threadgroup(kScMaxThreads)]]
kernel void state_scores(device const int *state_begins [[buffer(0)]],
                         device const int *batch_begins [[buffer(1)]],
                         device const int *states [[buffer(2)]],
                         device const int *arc_begins [[buffer(3)]],
                         device const int *list [[buffer(4)]],
                         device const Link *links [[buffer(5)]],
                         device float *scores [[buffer(6)]],
                         device int *best_arcs [[buffer(7)]],
                         constant ScoresParams &params [[buffer(8)]],
                         uint fsa [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]],
                         uint num_threads [[threads_per_threadgroup]]) {
  const Batches batches = {batch_begins,
                           states,
                           arc_begins,
                           params.num_fsas,
                           params.num_batches,
                           int(fsa),
                           params.descending != 0};
  // The state where paths begin, or end if seen backward.
  const int initial =
      params.to_src ? state_begins[fsa] : state_begins[fsa + 1] - 1;
  const int first_index = int(thread_index);

  Ahead ahead = Begin(batches, links, first_index);
  for (int n = 0; n < params.num_batches; ++n) {
    const Ahead next = Advance(batches, links, first_index, n, ahead);
    Node node = ahead.node;
    int index = first_index;
    bool is_first = true;
    while (node.state >= 0) {
      Sum sum = {-INFINITY, -1};
      int position = node.begin;
      if (is_first) {
        for (int i = 0; i < kScArcsAhead; ++i) {
          if (position < node.end) {
            const Link link = ahead.links.of[i];
            sum = Add(params, sum, scores[link.state] + link.score, position);
            ++position;
          }
        }
      }
      for (; position < node.end; ++position) {
        const Link link = links[position];
        sum = Add(params, sum, scores[link.state] + link.score, position);
      }
      if (params.has_best_arcs)
        best_arcs[node.state] = sum.best < 0 ? -1 : list[sum.best];
      if (sum.score == -INFINITY && node.state == initial) sum.score = 0.0f;
      scores[node.state] = sum.score;

      is_first = false;
      index += int(num_threads);
      node = GetNode(batches, ahead.range, index);
    }
    ahead = next;
    threadgroup_barrier(mem_flags::mem_device);
  }
}

// The last of the best arcs that leave each state, -1 if there is none, as
// found by the CPU: NaN is never the best.
//
// arcs            [num_arcs]
// leaving_begins  [num_states + 1], the row splits of axis 2 of the FSAs
// scores          [num_states], backward scores in the tropical semiring
// best_arcs       [num_states]; all are written
kernel void best_leaving_arcs(device const Arc *arcs [[buffer(0)]],
                              device const int *leaving_begins [[buffer(1)]],
                              device const float *scores [[buffer(2)]],
                              device int *best_arcs [[buffer(3)]],
                              constant BestArcsParams &params [[buffer(4)]],
                              uint i [[thread_position_in_grid]]) {
  const int state = int(i);
  if (state >= params.num_states) return;
  float best = -INFINITY;
  int best_arc = -1;
  for (int at = leaving_begins[state]; at < leaving_begins[state + 1]; ++at) {
    const Arc arc = arcs[at];
    const float score =
        scores[state - arc.src_state + arc.dest_state] + arc.score;
    if (score >= best) {
      best = score;
      best_arc = at;
    }
  }
  best_arcs[state] = best_arc;
}

// Returns the gradient of an arc's score.
//
// score, link   of the state that pulls, and of the arc
inline float ArcGrad(constant ScoresParams &params, float score, Link link,
                     int arc, device const float *scores,
                     device const int *best_arcs,
                     device const float *state_grad) {
  const float grad = state_grad[link.state];
  if (!params.log_semiring) return best_arcs[link.state] == arc ? grad : 0.0f;
  float other = scores[link.state];
  // So that no infinities are subtracted.
  if (other == -INFINITY) other = INFINITY;
  return precise::exp(score + link.score - other) * grad;
}

// The gradient of what state_scores does.  Batches come in the opposite order,
// and the arcs of a state are those at its other side.
//
// batch_begins, states, arc_begins, list, links   as above
// scores        [num_states], as above; not read in the tropical semiring
// best_arcs     [num_states], as above; not read in the log semiring
// state_grad    [num_states], on entry the gradient of `scores`; gets what
//               comes through other states as well
// arc_grad      [num_arcs], the gradient of the arcs' scores; all are written
[[max_total_threads_per_threadgroup(kScMaxThreads)]]
kernel void state_scores_backprop(device const int *batch_begins [[buffer(0)]],
                                  device const int *states [[buffer(1)]],
                                  device const int *arc_begins [[buffer(2)]],
                                  device const int *list [[buffer(3)]],
                                  device const Link *links [[buffer(4)]],
                                  device const float *scores [[buffer(5)]],
                                  device const int *best_arcs [[buffer(6)]],
                                  device float *state_grad [[buffer(7)]],
                                  device float *arc_grad [[buffer(8)]],
                                  constant ScoresParams &params [[buffer(9)]],
                                  uint fsa [[threadgroup_position_in_grid]],
                                  uint thread_index
                                  [[thread_index_in_threadgroup]],
                                  uint num_threads
                                  [[threads_per_threadgroup]]) {
  const Batches batches = {batch_begins,
                           states,
                           arc_begins,
                           params.num_fsas,
                           params.num_batches,
                           int(fsa),
                           params.descending != 0};
  const int first_index = int(thread_index);

  Ahead ahead = Begin(batches, links, first_index);
  for (int n = 0; n < params.num_batches; ++n) {
    const Ahead next = Advance(batches, links, first_index, n, ahead);
    Node node = ahead.node;
    int index = first_index;
    bool is_first = true;
    while (node.state >= 0) {
      const float score = params.log_semiring ? scores[node.state] : 0.0f;
      float sum = 0.0f;
      int position = node.begin;
      if (is_first) {
        for (int i = 0; i < kScArcsAhead; ++i) {
          if (position < node.end) {
            const int arc = list[position];
            const float grad = ArcGrad(params, score, ahead.links.of[i], arc,
                                       scores, best_arcs, state_grad);
            arc_grad[arc] = grad;
            sum += grad;
            ++position;
          }
        }
      }
      for (; position < node.end; ++position) {
        const int arc = list[position];
        const float grad = ArcGrad(params, score, links[position], arc, scores,
                                   best_arcs, state_grad);
        arc_grad[arc] = grad;
        sum += grad;
      }
      state_grad[node.state] += sum;

      is_first = false;
      index += int(num_threads);
      node = GetNode(batches, ahead.range, index);
    }
    ahead = next;
    threadgroup_barrier(mem_flags::mem_device);
  }
}
