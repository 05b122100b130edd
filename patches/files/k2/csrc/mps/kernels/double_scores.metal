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
#include "k2/csrc/mps/kernels/two_float.h"

// The scores of states, nearly in double precision (see two_float.h), and what
// k2 computes from them: total scores, posteriors of arcs, and gradients.
//
// One threadgroup goes through the batches of one FSA.  The states of a batch
// do not depend on each other.  Two runs give the same bits.
//
// In the tropical semiring a state's score is a LogSum.  Its m is 1 if the
// state's best path begins in the initial state, else 0.  m tells a state that
// no path reaches from a state whose path has a score of -infinity.

using namespace metal;

// A sum over arcs.
struct Sum {
  LogSum score;
  int best;  // in the tropical semiring the last of the best arcs, or -1
};

inline Sum BetterOf(Sum best, LogSum state, IncidentArc arc) {
  const LogSum score = Follow(state, arc.score);
  const bool is_better =
      score.r.high >= best.score.r.high && !IsLess(score.r, best.score.r);
  return is_better ? Sum{{score.r, state.m}, arc.arc} : best;
}

// What ComputeScores() writes.
struct Scores {
  device LogSum *states;  // [num_states]
  device float *totals;   // [num_fsas], -infinity for an FSA without states
  device int *best_arcs;  // [num_states], only in the tropical semiring
};

// A visitor that computes the score of a state.  Paths begin in state
// `initial`.
template <typename Arcs>
struct ComputeScore {
  Arcs arcs;
  Scores scores;
  int initial;
  bool log_semiring;

  void Visit(Work work) const {
    const Node node = work.indexes.node;
    // The states of the first arcs are loaded together.
    LogSum from[kDsArcsOfThread];
    for (int i = 0; i < kDsArcsOfThread; ++i)
      from[i] = node.begin + i < node.end
                    ? scores.states[ArcOf(arcs, work, i).state]
                    : ToLogSum(-INFINITY);
    Sum sum =
        log_semiring ? Sum{SumOfArcs(work, from), -1} : BestOfArcs(work, from);
    if (sum.score.r.high == -INFINITY && node.state == initial)
      sum.score = ToLogSum(0.0f);
    scores.states[node.state] = sum.score;
    if (!log_semiring) scores.best_arcs[node.state] = sum.best;
  }

  LogSum SumOfArcs(Work work, thread const LogSum *from) const {
    const Node node = work.indexes.node;
    TwoFloat r = kNoScore, m = {0.0f, 0.0f};
    // Where there is no arc, r remains: it may be NaN.
    for (int i = 0; i < kDsArcsOfThread; ++i)
      if (node.begin + i < node.end)
        r = MaxOfArcs(r, from[i], work.arcs[i].score);
    for (int i = node.begin + kDsArcsOfThread; i < node.end; ++i) {
      const IncidentArc arc = GetArc(arcs, node.state, i);
      r = MaxOfArcs(r, scores.states[arc.state], arc.score);
    }
    for (int i = 0; i < kDsArcsOfThread; ++i)
      m = ::SumOfArcs(m, r, from[i], work.arcs[i].score);
    for (int i = node.begin + kDsArcsOfThread; i < node.end; ++i) {
      const IncidentArc arc = GetArc(arcs, node.state, i);
      m = ::SumOfArcs(m, r, scores.states[arc.state], arc.score);
    }
    return MakeLogSum(r, m);
  }

  Sum BestOfArcs(Work work, thread const LogSum *from) const {
    const Node node = work.indexes.node;
    Sum best = {{kNoScore, {0.0f, 0.0f}}, -1};
    for (int i = 0; i < kDsArcsOfThread; ++i)
      if (node.begin + i < node.end)
        best = BetterOf(best, from[i], ArcOf(arcs, work, i));
    for (int i = node.begin + kDsArcsOfThread; i < node.end; ++i) {
      const IncidentArc arc = GetArc(arcs, node.state, i);
      best = BetterOf(best, scores.states[arc.state], arc);
    }
    return best;
  }
};

// Computes the scores of an FSA's states in this dispatch's batches.  The score
// of state `final` is the total score.
template <typename Arcs>
inline void ComputeScores(constant DoubleScoresParams &params, Batches batches,
                          Arcs arcs, int initial, int final, Scores scores,
                          int thread_index, int num_threads) {
  ForEachState(
      batches, arcs, params.first_batch, params.last_batch, thread_index,
      num_threads,
      ComputeScore<Arcs>{arcs, scores, initial, bool(params.log_semiring)});
  if (thread_index == 0 && params.last_batch == batches.num_batches)
    scores.totals[batches.fsa] =
        initial >= 0 ? Score(scores.states[final]).high : -INFINITY;
}

// Computes forward scores, backward scores, or both.  There is one threadgroup
// for each FSA and direction.  If params.is_forward, the first num_fsas
// threadgroups compute forward scores; all others compute backward scores.
//
// arcs            [num_arcs]
// state_begins    [num_fsas + 1], the row splits of axis 1 of the FSAs
// batch_begins, states   see Batches
// leaving_begins  [num_states + 1], the row splits of axis 2 of the FSAs
// incoming_begins, incoming   see IncomingArcs; only for forward scores
// scores, totals, best_arcs   see Scores; for each direction
[[max_total_threads_per_threadgroup(kDsMaxThreads)]]
kernel void double_scores(device const Arc *arcs [[buffer(0)]],
                          device const int *state_begins [[buffer(1)]],
                          device const int *batch_begins [[buffer(2)]],
                          device const int *states [[buffer(3)]],
                          device const int *leaving_begins [[buffer(4)]],
                          device const int *incoming_begins [[buffer(5)]],
                          device const int *incoming [[buffer(6)]],
                          device LogSum *scores [[buffer(7)]],
                          device float *totals [[buffer(8)]],
                          device int *best_arcs [[buffer(9)]],
                          constant DoubleScoresParams &params [[buffer(10)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint num_threads [[threads_per_threadgroup]]) {
  const int direction = int(group) / params.num_fsas,
            fsa = int(group) % params.num_fsas,
            num_best = params.log_semiring ? 1 : params.num_states;
  const Scores out = {scores + direction * params.num_states,
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

// Rounds scores to floats.  There is one thread for each state.
//
// scores   [num_states]
// rounded  [num_states]; all are written
kernel void double_rounded(device const LogSum *scores [[buffer(0)]],
                           device float *rounded [[buffer(1)]],
                           constant DoubleScoresParams &params [[buffer(2)]],
                           uint i [[thread_position_in_grid]]) {
  if (int(i) < params.num_states) rounded[i] = Score(scores[i]).high;
}

// Gradients of the scores of states, and of total scores in the tropical
// semiring.
//
// The score of a state is a sum over arcs: in the forward direction over the
// arcs that enter the state, in the backward direction over the arcs that leave
// it. The share of an arc is its part of that sum, from 0 to 1.  The gradient
// of the arc is its share of the state's gradient.  The gradient of a state is
// the caller's gradient plus the gradients of the arcs through which other
// states use its score.

inline TwoFloat ShareOf(LogSum path, LogSum sum) {
  if (sum.r.high == -INFINITY) return TwoFloat{0.0f, 0.0f};
  const TwoFloat diff = Add(path.r, Negative(sum.r));
  if (!(fabs(diff.high) <= kMaxDiff))
    return TwoFloat{precise::exp(path.r.high - sum.r.high), 0.0f};
  return Mul(Exp(diff), Div(path.m, sum.m));
}

// A threadgroup's part of an FSA, where params.num_parts threadgroups work on
// each FSA.
struct Part {
  int fsa, begin, end;  // its states, none if begin == end
  int first, step;      // the first element of thread 0, and to the next one
};

inline Part GetPart(constant DoubleScoresParams &params,
                    device const int *state_begins, uint group,
                    uint num_threads) {
  const int fsa = int(group) / params.num_parts;
  return Part{fsa, state_begins[fsa], state_begins[fsa + 1],
              int(group) % params.num_parts * int(num_threads),
              params.num_parts * int(num_threads)};
}

// Computes the shares of arcs: in forward scores if params.is_forward, else in
// backward scores.  Each threadgroup does a Part.
//
// scores, best_arcs   see Scores
// shares              [num_arcs]
kernel void double_shares(device const Arc *arcs [[buffer(0)]],
                          device const int *state_begins [[buffer(1)]],
                          device const int *leaving_begins [[buffer(2)]],
                          device const LogSum *scores [[buffer(3)]],
                          device const int *best_arcs [[buffer(4)]],
                          device TwoFloat *shares [[buffer(5)]],
                          constant DoubleScoresParams &params [[buffer(6)]],
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
    if (params.log_semiring) {
      shares[i] = ShareOf(Follow(scores[from], arc.score), scores[to]);
    } else {
      shares[i] = TwoFloat{best_arcs[to] == i ? 1.0f : 0.0f, 0.0f};
    }
  }
}

// Returns the product, rounded once; if that is not finite, the product of
// floats.
inline float Scale(TwoFloat a, float b) {
  const float product = Mul(a, TwoFloat{b, 0.0f}).high;
  return fabs(product) < INFINITY ? product : a.high * b;
}

// What Backprop() reads and writes.
struct Gradients {
  device const LogSum *scores;    // [num_states]
  device const TwoFloat *shares;  // [num_arcs]
  device const float *grad;       // the caller's: of scores, [num_states]; or,
                                  // if params.of_totals, of total scores,
                                  // [num_fsas], grad_stride apart
  device TwoFloat *state_grad;    // [num_states], scratch
  device float *arc_grad;         // [num_arcs]; all are written
};

// A visitor that computes the gradient of a state, and of the arcs through
// which other states use its score.  The score of state `final` is the total
// score; the gradient is 0 if no path reaches `final`, as in ShortestPath().
template <typename Arcs>
struct ComputeGradient {
  Arcs arcs;
  Gradients of;
  int final;
  bool of_totals;
  float factor;

  void Visit(Work work) const {
    const Node node = work.indexes.node;
    TwoFloat sum = {0.0f, 0.0f};
    if (!of_totals) {
      sum.high = of.grad[node.state];
    } else if (node.state == final && of.scores[final].m.high != 0.0f) {
      sum.high = 1.0f;
    }
    for (int i = 0; i < kDsArcsOfThread; ++i)
      if (node.begin + i < node.end) sum = AddArc(sum, ArcOf(arcs, work, i));
    for (int i = node.begin + kDsArcsOfThread; i < node.end; ++i)
      sum = AddArc(sum, GetArc(arcs, node.state, i));
    of.state_grad[node.state] = sum;
  }

  TwoFloat AddArc(TwoFloat sum, IncidentArc arc) const {
    const TwoFloat part = Mul(of.shares[arc.arc], of.state_grad[arc.state]);
    of.arc_grad[arc.arc] = Scale(part, factor);
    return Add(sum, part);
  }
};

// Computes the gradients of an FSA in this dispatch's batches.  `arcs` are the
// arcs through which other states use a state's score.
template <typename Arcs>
inline void Backprop(constant DoubleScoresParams &params, Batches batches,
                     Arcs arcs, int final, Gradients of, int thread_index,
                     int num_threads) {
  const bool of_totals = params.of_totals;
  const float factor =
      of_totals ? of.grad[long(batches.fsa) * params.grad_stride] : 1.0f;
  ForEachState(batches, arcs, params.first_batch, params.last_batch,
               thread_index, num_threads,
               ComputeGradient<Arcs>{arcs, of, final, of_totals, factor});
}

// Computes the gradient of forward scores if params.is_forward, else of
// backward scores.  There is one threadgroup for each FSA.
//
// incoming_begins, incoming   see IncomingArcs; only for backward scores
// scores, shares, grad, state_grad, arc_grad   see Gradients
[[max_total_threads_per_threadgroup(kDsMaxThreads)]]
kernel void double_backprop(device const Arc *arcs [[buffer(0)]],
                            device const int *state_begins [[buffer(1)]],
                            device const int *batch_begins [[buffer(2)]],
                            device const int *states [[buffer(3)]],
                            device const int *leaving_begins [[buffer(4)]],
                            device const int *incoming_begins [[buffer(5)]],
                            device const int *incoming [[buffer(6)]],
                            device const LogSum *scores [[buffer(7)]],
                            device const TwoFloat *shares [[buffer(8)]],
                            device const float *grad [[buffer(9)]],
                            device TwoFloat *state_grad [[buffer(10)]],
                            device float *arc_grad [[buffer(11)]],
                            constant DoubleScoresParams &params [[buffer(12)]],
                            uint fsa [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint num_threads [[threads_per_threadgroup]]) {
  const Gradients of = {scores, shares, grad, state_grad, arc_grad};
  const Batches batches = {batch_begins,    states,
                           params.num_fsas, params.num_batches,
                           int(fsa),        bool(params.is_forward)};
  if (params.is_forward) {
    Backprop(params, batches, LeavingArcs{arcs, leaving_begins},
             state_begins[fsa + 1] - 1, of, int(thread_index),
             int(num_threads));
  } else {
    Backprop(params, batches, IncomingArcs{arcs, incoming_begins, incoming},
             state_begins[fsa], of, int(thread_index), int(num_threads));
  }
}

// Computes the logarithms of the posteriors of arcs.  Each threadgroup does a
// Part.
//
// arc_post     [num_arcs]; all are written
kernel void double_arc_post(device const Arc *arcs [[buffer(0)]],
                            device const int *state_begins [[buffer(1)]],
                            device const int *leaving_begins [[buffer(2)]],
                            device const LogSum *forward_scores [[buffer(3)]],
                            device const LogSum *backward_scores [[buffer(4)]],
                            device float *arc_post [[buffer(5)]],
                            constant DoubleScoresParams &params [[buffer(6)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint num_threads [[threads_per_threadgroup]]) {
  const Part part = GetPart(params, state_begins, group, num_threads);
  const int begin = part.begin, end = part.end;
  if (begin == end) return;
  const LogSum total = forward_scores[end - 1];
  for (int i = leaving_begins[begin] + part.first + int(thread_index);
       i < leaving_begins[end]; i += part.step) {
    const Arc arc = arcs[i];
    arc_post[i] =
        LogOf(GetPosterior(forward_scores[begin + arc.src_state], arc.score,
                           backward_scores[begin + arc.dest_state], total))
            .high;
  }
}

// Computes the gradient of total scores in the log semiring.  The gradient of
// an arc is its posterior times the gradient of the total score.  Each
// threadgroup does a Part.
//
// grad      [num_fsas], params.grad_stride elements apart
// arc_grad  [num_arcs]; all are written
kernel void double_totals_backprop(
    device const Arc *arcs [[buffer(0)]],
    device const int *state_begins [[buffer(1)]],
    device const int *leaving_begins [[buffer(2)]],
    device const LogSum *forward_scores [[buffer(3)]],
    device const LogSum *backward_scores [[buffer(4)]],
    device const float *grad [[buffer(5)]],
    device float *arc_grad [[buffer(6)]],
    constant DoubleScoresParams &params [[buffer(7)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  const Part part = GetPart(params, state_begins, group, num_threads);
  const int begin = part.begin, end = part.end;
  if (begin == end) return;
  const LogSum total = backward_scores[begin];
  const float factor = grad[long(part.fsa) * params.grad_stride];
  for (int i = leaving_begins[begin] + part.first + int(thread_index);
       i < leaving_begins[end]; i += part.step) {
    const Arc arc = arcs[i];
    arc_grad[i] = factor * ValueOf(GetPosterior(
                               forward_scores[begin + arc.src_state], arc.score,
                               backward_scores[begin + arc.dest_state], total));
  }
}

// Computes the gradient of double_arc_post for the scores of states.  (For the
// scores of arcs, the gradient is arc_grad itself.)
//
// A state's forward score is a term of the posteriors of the arcs that leave
// the state, its backward score of the arcs that enter it.  The total score is
// a term of all posteriors of an FSA.  Its gradient goes in halves to the
// forward score of the final state and to the backward score of the initial
// state.  All sums are in the order of the arcs.
//
// Each threadgroup does a Part.
//
// arc_grad       [num_arcs], the gradient of arc_post
// forward_grad   [num_states], the gradient of forward scores; all are written
// backward_grad  [num_states], the gradient of backward scores; all are written
[[max_total_threads_per_threadgroup(kDsArcThreads)]]
kernel void double_arc_post_backprop(
    device const float *arc_grad [[buffer(0)]],
    device const int *state_begins [[buffer(1)]],
    device const int *leaving_begins [[buffer(2)]],
    device const int *incoming_begins [[buffer(3)]],
    device const int *incoming [[buffer(4)]],
    device float *forward_grad [[buffer(5)]],
    device float *backward_grad [[buffer(6)]],
    constant DoubleScoresParams &params [[buffer(7)]],
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
