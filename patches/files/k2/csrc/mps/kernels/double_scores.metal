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

#include "k2/csrc/mps/kernels/double_batches.h"

// The scores of states in nearly double precision (see two_float.h), and what
// k2 computes from them: total scores, posteriors of arcs, and gradients.
//
// One threadgroup goes through the batches of one FSA.  The states of a batch
// do not depend on each other.  Two runs give bit for bit the same results.

using namespace metal;

// A visitor of ForEachState() that computes the score of a state.  Paths begin
// in state `initial`.
template <typename Score, typename Arcs>
struct ComputeScore {
  Arcs arcs;
  Scores<Score> scores;
  int initial;

  void Visit(Work work) const {
    const Node node = work.indexes.node;
    // Loads the scores at the other ends of the first arcs all at once.
    Score from[kDsArcsOfThread];
#pragma unroll
    for (int i = 0; i < kDsArcsOfThread; ++i)
      from[i] = node.begin + i < node.end
                    ? scores.states[ArcOf(arcs, work, i).state]
                    : OnePath<Score>(-INFINITY);
    Score sum = SumOfArcs(arcs, scores, work, from);
    if (node.state == initial && IsMinusInfinity(sum))
      sum = OnePath<Score>(0.0f);
    scores.states[node.state] = sum;
  }
};

// Computes the scores of an FSA's states in this dispatch's batches.  The score
// of state `final` is the total score.
template <typename Score, typename Arcs>
METAL_FUNC void ComputeScores(constant DoubleScoresParams &params,
                              Batches batches, Arcs arcs, int initial,
                              int final, Scores<Score> scores, int thread_index,
                              int num_threads) {
  ForEachState(batches, arcs, params.first_batch, params.last_batch,
               thread_index, num_threads,
               ComputeScore<Score, Arcs>{arcs, scores, initial});
  if (thread_index == 0 && params.last_batch == batches.num_batches)
    scores.totals[batches.fsa] =
        initial >= 0 ? AsFloat(scores.states[final]) : -INFINITY;
}

// Computes forward scores, backward scores, or both.  There is one threadgroup
// for each FSA and direction.  If params.is_forward, the first num_fsas
// threadgroups compute forward scores.  All other threadgroups compute backward
// scores.
//
// arcs            [num_arcs]
// state_begins    [num_fsas + 1], the row splits of axis 1 of the FSAs
// batch_begins, states   see Batches
// leaving_begins  [num_states + 1], the row splits of axis 2 of the FSAs
// incoming_begins, incoming   see IncomingArcs; only for forward scores
// scores, totals, best_arcs   see Scores; if there are two directions, the
//                 backward scores follow the forward scores
template <typename Score, int kThreads>
[[max_total_threads_per_threadgroup(kThreads)]]
kernel void double_scores(
    device const Arc *arcs [[buffer(kDsArcs)]],
    device const int *state_begins [[buffer(kDsStateBegins)]],
    device const int *batch_begins [[buffer(kDsBatchBegins)]],
    device const int *states [[buffer(kDsStates)]],
    device const int *leaving_begins [[buffer(kDsLeavingBegins)]],
    device const int *incoming_begins [[buffer(kDsIncomingBegins)]],
    device const int *incoming [[buffer(kDsIncoming)]],
    device Score *scores [[buffer(kDsScores)]],
    device float *totals [[buffer(kDsTotals)]],
    device int *best_arcs [[buffer(kDsBestArcs)]],
    constant DoubleScoresParams &params [[buffer(kDsParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  const int direction = int(group) / params.num_fsas,
            fsa = int(group) % params.num_fsas,
            num_best = params.log_semiring ? 1 : params.num_states;
  const Scores<Score> out = {scores + direction * params.num_states,
                             totals + direction * params.num_fsas,
                             best_arcs + direction * num_best};
  const bool is_forward = params.is_forward && direction == 0;
  const Batches batches = {batch_begins,       states, params.num_fsas,
                           params.num_batches, fsa,    !is_forward};
  const int begin = state_begins[fsa], last = state_begins[fsa + 1] - 1;
  if (is_forward) {
    ComputeScores(params, batches,
                  IncomingArcs{arcs, incoming_begins, incoming},
                  begin <= last ? begin : -1, last, out, int(thread_index),
                  int(num_threads));
  } else {
    ComputeScores(params, batches, LeavingArcs{arcs, leaving_begins},
                  begin <= last ? last : -1, begin, out, int(thread_index),
                  int(num_threads));
  }
}

#define K2_INSTANCE(suffix, Score, threads)                  \
  template [[host_name("double_scores_" suffix)]] [[kernel]] \
  decltype(double_scores<Score, threads>) double_scores<Score, threads>;

K2_INSTANCE("log_256", LogScore, 256)
K2_INSTANCE("log_512", LogScore, 512)
K2_INSTANCE("log_1024", LogScore, 1024)
K2_INSTANCE("tropical_256", BestScore, 256)
K2_INSTANCE("tropical_512", BestScore, 512)
K2_INSTANCE("tropical_1024", BestScore, 1024)

// Rounds scores to floats.  There is one thread for each state.
//
// scores   [num_states]
// rounded  [num_states]; all elements are written
template <typename Score>
kernel void double_rounded(device const Score *scores [[buffer(kDsScores)]],
                           device float *rounded [[buffer(kDsRounded)]],
                           constant DoubleScoresParams &params
                           [[buffer(kDsParams)]],
                           uint i [[thread_position_in_grid]]) {
  if (int(i) < params.num_states) rounded[i] = AsFloat(scores[i]);
}

template [[host_name("double_rounded_log")]] [[kernel]]
decltype(double_rounded<LogScore>) double_rounded<LogScore>;
template [[host_name("double_rounded_tropical")]] [[kernel]]
decltype(double_rounded<BestScore>) double_rounded<BestScore>;

// Gradients of the scores of states, and of total scores in the tropical
// semiring.
//
// The forward score of a state is a sum over the arcs that enter the state.
// The backward score is a sum over the arcs that leave the state.  The share of
// an arc is a number from 0 to 1: the part of the sum that comes from the arc.
// The gradient of the arc is its share times the state's gradient.  The
// gradient of a state is the caller's gradient plus the gradients of the arcs
// through which other states use the state's score.

// Computes the shares of arcs in forward scores if params.is_forward, else the
// shares in backward scores.  Each threadgroup processes a Part.
//
// scores      see Scores; only in the log semiring
// best_arcs   see Scores; only in the tropical semiring
// shares      [num_arcs]
kernel void double_shares(device const Arc *arcs [[buffer(kDsArcs)]],
                          device const int *state_begins
                          [[buffer(kDsStateBegins)]],
                          device const int *leaving_begins
                          [[buffer(kDsLeavingBegins)]],
                          device const LogScore *scores [[buffer(kDsScores)]],
                          device const int *best_arcs [[buffer(kDsBestArcs)]],
                          device TwoFloat *shares [[buffer(kDsShares)]],
                          constant DoubleScoresParams &params
                          [[buffer(kDsParams)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint num_threads [[threads_per_threadgroup]]) {
  const Part part = GetPart(params, state_begins, group, num_threads);
  const int begin = part.begin, end = part.end;
  if (begin == end) return;
  for (int i = leaving_begins[begin] + part.first + int(thread_index);
       i < leaving_begins[end]; i += part.step) {
    const Arc arc = arcs[i];
    const int src = begin + arc.src_state, dest = begin + arc.dest_state,
              to = params.is_forward ? dest : src,
              from = params.is_forward ? src : dest;
    if (!params.log_semiring) {
      shares[i] = TwoFloat{best_arcs[to] == i ? 1.0f : 0.0f, 0.0f};
    } else if (IsMinusInfinity(scores[to])) {
      shares[i] = TwoFloat{0.0f, 0.0f};
    } else {
      shares[i] = ValueOf(PosteriorOf(scores[from], ExpOf<LogScore>(arc.score),
                                      OnePath<LogScore>(0.0f), scores[to]));
    }
  }
}

// What Backprop() reads and writes.
struct Gradients {
  // [num_states], only if params.of_totals
  device const BestScore *scores;
  device const TwoFloat *shares;  // [num_arcs]
  // The caller's gradient.  If params.of_totals, `grad` is the gradient of
  // total scores, [num_fsas], with distance grad_stride between elements.  Else
  // `grad` is the gradient of scores, [num_states].
  device const float *grad;
  device TwoFloat *state_grad;  // [num_states], scratch
  device float *arc_grad;       // [num_arcs]; all elements are written
};

// A visitor that computes the gradients of a state and of the arcs through
// which other states use the state's score.  The score of state `final` is the
// total score.  If no path reaches `final`, the gradient is 0, as in
// ShortestPath().
template <typename Arcs>
struct ComputeGradient {
  Arcs arcs;
  Gradients grads;
  int final;
  bool of_totals;
  float factor;

  void Visit(Work work) const {
    const Node node = work.indexes.node;
    TwoFloat sum = {0.0f, 0.0f};
    if (!of_totals) {
      sum.high = grads.grad[node.state];
    } else if (node.state == final && grads.scores[final].is_reached != 0.0f) {
      sum.high = 1.0f;
    }
#pragma unroll
    for (int i = 0; i < kDsArcsOfThread; ++i)
      if (node.begin + i < node.end) sum = AddArc(sum, ArcOf(arcs, work, i));
    for (int i = node.begin + kDsArcsOfThread; i < node.end; ++i)
      sum = AddArc(sum, GetArc(arcs, node.state, i));
    grads.state_grad[node.state] = sum;
  }

  TwoFloat AddArc(TwoFloat sum, IncidentArc arc) const {
    const TwoFloat part =
        Mul(grads.shares[arc.arc], grads.state_grad[arc.state]);
    grads.arc_grad[arc.arc] = Scale(part, factor);
    return Add(sum, part);
  }
};

// Computes the gradients of an FSA in this dispatch's batches.  `arcs` are
// LeavingArcs for forward scores, and IncomingArcs for backward scores: by such
// an arc, the score of another state depends on a state's score.
template <typename Arcs>
inline void Backprop(constant DoubleScoresParams &params, Batches batches,
                     Arcs arcs, int final, Gradients grads, int thread_index,
                     int num_threads) {
  const bool of_totals = params.of_totals;
  const float factor =
      of_totals ? grads.grad[long(batches.fsa) * params.grad_stride] : 1.0f;
  ForEachState(batches, arcs, params.first_batch, params.last_batch,
               thread_index, num_threads,
               ComputeGradient<Arcs>{arcs, grads, final, of_totals, factor});
}

// Computes the gradient of the arcs' scores from the gradient of forward scores
// if params.is_forward, else from the gradient of backward scores.  There is
// one threadgroup for each FSA.
//
// incoming_begins, incoming   see IncomingArcs; only for backward scores
// scores, shares, grad, state_grad, arc_grad   see Gradients
template <int kThreads>
[[max_total_threads_per_threadgroup(kThreads)]]
kernel void double_backprop(
    device const Arc *arcs [[buffer(kDsArcs)]],
    device const int *state_begins [[buffer(kDsStateBegins)]],
    device const int *batch_begins [[buffer(kDsBatchBegins)]],
    device const int *states [[buffer(kDsStates)]],
    device const int *leaving_begins [[buffer(kDsLeavingBegins)]],
    device const int *incoming_begins [[buffer(kDsIncomingBegins)]],
    device const int *incoming [[buffer(kDsIncoming)]],
    device const BestScore *scores [[buffer(kDsScores)]],
    device const TwoFloat *shares [[buffer(kDsShares)]],
    device const float *grad [[buffer(kDsGrad)]],
    device TwoFloat *state_grad [[buffer(kDsStateGrad)]],
    device float *arc_grad [[buffer(kDsArcGrad)]],
    constant DoubleScoresParams &params [[buffer(kDsParams)]],
    uint fsa [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  const Gradients grads = {scores, shares, grad, state_grad, arc_grad};
  const Batches batches = {batch_begins,    states,
                           params.num_fsas, params.num_batches,
                           int(fsa),        bool(params.is_forward)};
  if (params.is_forward) {
    Backprop(params, batches, LeavingArcs{arcs, leaving_begins},
             state_begins[fsa + 1] - 1, grads, int(thread_index),
             int(num_threads));
  } else {
    Backprop(params, batches, IncomingArcs{arcs, incoming_begins, incoming},
             state_begins[fsa], grads, int(thread_index), int(num_threads));
  }
}

template [[host_name("double_backprop_256")]] [[kernel]]
decltype(double_backprop<256>) double_backprop<256>;
template [[host_name("double_backprop_512")]] [[kernel]]
decltype(double_backprop<512>) double_backprop<512>;
template [[host_name("double_backprop_1024")]] [[kernel]]
decltype(double_backprop<1024>) double_backprop<1024>;

// Computes the logarithms of the posteriors of arcs.  Each threadgroup
// processes a Part.
//
// forward_scores, backward_scores   [num_states]
// arc_post     [num_arcs]; all elements are written
template <typename Score>
kernel void double_arc_post(
    device const Arc *arcs [[buffer(kDsArcs)]],
    device const int *state_begins [[buffer(kDsStateBegins)]],
    device const int *leaving_begins [[buffer(kDsLeavingBegins)]],
    device const Score *forward_scores [[buffer(kDsForwardScores)]],
    device const Score *backward_scores [[buffer(kDsBackwardScores)]],
    device float *arc_post [[buffer(kDsArcPost)]],
    constant DoubleScoresParams &params [[buffer(kDsParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  const Part part = GetPart(params, state_begins, group, num_threads);
  const int begin = part.begin, end = part.end;
  if (begin == end) return;
  const Score total = forward_scores[end - 1];
  for (int i = leaving_begins[begin] + part.first + int(thread_index);
       i < leaving_begins[end]; i += part.step) {
    const Arc arc = arcs[i];
    arc_post[i] = LogPosterior(forward_scores[begin + arc.src_state], arc.score,
                               backward_scores[begin + arc.dest_state], total);
  }
}

template [[host_name("double_arc_post_log")]] [[kernel]]
decltype(double_arc_post<LogScore>) double_arc_post<LogScore>;
template [[host_name("double_arc_post_tropical")]] [[kernel]]
decltype(double_arc_post<BestScore>) double_arc_post<BestScore>;

// Computes the gradient of the arcs' scores from the gradient of total scores,
// in the log semiring.  The gradient of an arc is its posterior times the
// gradient of the total score.  Each threadgroup processes a Part.
//
// grad      [num_fsas], with distance params.grad_stride between elements
// arc_grad  [num_arcs]; all elements are written
kernel void double_totals_backprop(
    device const Arc *arcs [[buffer(kDsArcs)]],
    device const int *state_begins [[buffer(kDsStateBegins)]],
    device const int *leaving_begins [[buffer(kDsLeavingBegins)]],
    device const LogScore *forward_scores [[buffer(kDsForwardScores)]],
    device const LogScore *backward_scores [[buffer(kDsBackwardScores)]],
    device const float *grad [[buffer(kDsGrad)]],
    device float *arc_grad [[buffer(kDsArcGrad)]],
    constant DoubleScoresParams &params [[buffer(kDsParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  const Part part = GetPart(params, state_begins, group, num_threads);
  const int begin = part.begin, end = part.end;
  if (begin == end) return;
  const LogScore total = backward_scores[begin];
  const float factor = grad[long(part.fsa) * params.grad_stride];
  for (int i = leaving_begins[begin] + part.first + int(thread_index);
       i < leaving_begins[end]; i += part.step) {
    const Arc arc = arcs[i];
    const TwoFloat posterior = ValueOf(PosteriorOf(
        forward_scores[begin + arc.src_state], ExpOf<LogScore>(arc.score),
        backward_scores[begin + arc.dest_state], total));
    arc_grad[i] = factor * posterior.high;
  }
}

// Computes the gradients of forward and backward scores from the gradient of
// arc_post.  (The gradient of the arcs' own scores is arc_grad itself.)
//
// The logarithm of an arc's posterior is the forward score of the arc's source,
// plus the arc's score, plus the backward score of the arc's destination, minus
// the total score.  So the gradient of a state's forward score is the sum of
// arc_grad over the arcs that leave the state.  The gradient of a state's
// backward score is the sum of arc_grad over the arcs that enter the state.
// The gradient of the total score is minus the sum of arc_grad over all arcs of
// the FSA.  One half of this gradient is the gradient of the final state's
// forward score.  The other half is the gradient of the initial state's
// backward score.  All sums are added up in a fixed order.
//
// Each threadgroup processes a Part.
//
// arc_grad       [num_arcs], the gradient of arc_post
// forward_grad   [num_states], gets the gradient of forward scores
// backward_grad  [num_states], gets the gradient of backward scores
[[max_total_threads_per_threadgroup(kDsArcThreads)]]
kernel void double_arc_post_backprop(
    device const float *arc_grad [[buffer(kDsArcGrad)]],
    device const int *state_begins [[buffer(kDsStateBegins)]],
    device const int *leaving_begins [[buffer(kDsLeavingBegins)]],
    device const int *incoming_begins [[buffer(kDsIncomingBegins)]],
    device const int *incoming [[buffer(kDsIncoming)]],
    device float *forward_grad [[buffer(kDsForwardGrad)]],
    device float *backward_grad [[buffer(kDsBackwardGrad)]],
    constant DoubleScoresParams &params [[buffer(kDsParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  threadgroup float sums[kDsArcThreads];

  const Part part = GetPart(params, state_begins, group, num_threads);
  const int begin = part.begin, end = part.end;
  if (begin == end) return;
  for (int state = begin + part.first + int(thread_index); state < end;
       state += part.step) {
    float leave = 0.0f, enter = 0.0f;
    for (int i = leaving_begins[state]; i < leaving_begins[state + 1]; ++i)
      leave += arc_grad[i];
    for (int i = incoming_begins[state]; i < incoming_begins[state + 1]; ++i)
      enter += arc_grad[incoming[i]];
    if (state != end - 1) forward_grad[state] = leave;
    if (state != begin) backward_grad[state] = enter;
  }
  if (part.first != 0) return;

  float sum = 0.0f;
  for (int i = leaving_begins[begin] + int(thread_index);
       i < leaving_begins[end]; i += int(num_threads))
    sum += arc_grad[i];
  sums[thread_index] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index != 0) return;
  sum = 0.0f;
  for (uint i = 0; i < num_threads; ++i) sum += sums[i];
  forward_grad[end - 1] = backward_grad[begin] = -0.5f * sum;
}
