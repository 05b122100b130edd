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

#ifndef K2_CSRC_MPS_KERNELS_DOUBLE_SUMS_H_
#define K2_CSRC_MPS_KERNELS_DOUBLE_SUMS_H_

#include "k2/csrc/mps/kernels/double_batches.h"
#include "k2/csrc/mps/kernels/path_sums.h"

// For kernels only: the scores of states, as sums over arcs.

// What a state has in the log semiring.
typedef PathSum<TwoFloat, TwoFloat> LogScore;

// What a state has in the tropical semiring.
struct BestScore {
  TwoFloat score;
  // 1 if the state's best path begins in the initial state, else 0.  This tells
  // a state that no path reaches from a state whose path has a score of
  // -infinity.
  float is_reached;
};

template <>
inline BestScore OnePath<BestScore>(float score) {
  return BestScore{{score, 0.0f}, 1.0f};
}

inline bool IsMinusInfinity(LogScore a) { return a.exponent.high == -INFINITY; }
inline bool IsMinusInfinity(BestScore a) { return a.score.high == -INFINITY; }

inline float AsFloat(LogScore a) { return ScoreOf(a).high; }
inline float AsFloat(BestScore a) { return a.score.high; }

// What double_scores writes.
template <typename Score>
struct Scores {
  device Score *states;   // [num_states]
  device float *totals;   // [num_fsas], -infinity for an FSA without states
  device int *best_arcs;  // [num_states], only in the tropical semiring: the
                          // last of the best arcs, or -1
};

// Returns the score of a state, the sum over its arcs.
//
// from   the scores of the states at the other ends of the first arcs
template <typename Arcs>
inline LogScore SumOfArcs(Arcs arcs, Scores<LogScore> scores, Work work,
                          thread const LogScore *from) {
  const Node node = work.indexes.node;
  LogScore exps[kDsArcsOfThread];
  TwoFloat max = {-INFINITY, 0.0f};
#pragma unroll
  for (int i = 0; i < kDsArcsOfThread; ++i) {
    exps[i] = ExpOf<LogScore>(work.arcs[i].score);
    // Where there is no arc, the maximum remains: it may be NaN.
    const TwoFloat more = MaxInOrder(max, from[i], exps[i]);
    max = node.begin + i < node.end ? more : max;
  }
  for (int i = node.begin + kDsArcsOfThread; i < node.end; ++i) {
    const IncidentArc arc = GetArc(arcs, node.state, i);
    max = MaxInOrder(max, scores.states[arc.state], ExpOf<LogScore>(arc.score));
  }
  TwoFloat sum = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < kDsArcsOfThread; ++i)
    sum = AddInOrder(sum, max, from[i], exps[i]);
  for (int i = node.begin + kDsArcsOfThread; i < node.end; ++i) {
    const IncidentArc arc = GetArc(arcs, node.state, i);
    sum = AddInOrder(sum, max, scores.states[arc.state],
                     ExpOf<LogScore>(arc.score));
  }
  return MakeSum(max, sum);
}

struct BestArc {
  BestScore best;
  int arc;
};

inline BestArc BetterOf(BestArc best, BestScore state, IncidentArc arc) {
  const TwoFloat score = Add(state.score, arc.score);
  const bool is_better =
      score.high >= best.best.score.high && !IsLess(score, best.best.score);
  return is_better ? BestArc{{score, state.is_reached}, arc.arc} : best;
}

template <typename Arcs>
inline BestScore SumOfArcs(Arcs arcs, Scores<BestScore> scores, Work work,
                           thread const BestScore *from) {
  const Node node = work.indexes.node;
  BestArc best = {{{-INFINITY, 0.0f}, 0.0f}, -1};
#pragma unroll
  for (int i = 0; i < kDsArcsOfThread; ++i)
    if (node.begin + i < node.end)
      best = BetterOf(best, from[i], ArcOf(arcs, work, i));
  for (int i = node.begin + kDsArcsOfThread; i < node.end; ++i) {
    const IncidentArc arc = GetArc(arcs, node.state, i);
    best = BetterOf(best, scores.states[arc.state], arc);
  }
  scores.best_arcs[node.state] = best.arc;
  return best.best;
}

// Returns the logarithm of the posterior of an arc from a state with a forward
// score to a state with a backward score.  If there is no path, the logarithm
// is -infinity.
inline float LogPosterior(LogScore forward, float arc_score, LogScore backward,
                          LogScore total) {
  return ScoreOf(
             PosteriorOf(forward, ExpOf<LogScore>(arc_score), backward, total))
      .high;
}
inline float LogPosterior(BestScore forward, float arc_score,
                          BestScore backward, BestScore total) {
  const TwoFloat minus_total =
      IsMinusInfinity(total) ? total.score : Negative(total.score);
  const float rough =
      forward.score.high + arc_score + backward.score.high + minus_total.high;
  if (!(metal::fabs(rough) < INFINITY)) return rough;
  return Add(Add(Add(forward.score, arc_score), backward.score), minus_total)
      .high;
}

// Returns the product, rounded once; if that is not finite, the product of
// floats.
inline float Scale(TwoFloat a, float b) {
  const float product = Mul(a, TwoFloat{b, 0.0f}).high;
  return metal::fabs(product) < INFINITY ? product : a.high * b;
}

#endif  // K2_CSRC_MPS_KERNELS_DOUBLE_SUMS_H_
