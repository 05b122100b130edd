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

#ifndef K2_CSRC_MPS_KERNELS_DOUBLE_BATCHES_H_
#define K2_CSRC_MPS_KERNELS_DOUBLE_BATCHES_H_

#include "k2/csrc/mps/kernels/arc.h"
#include "k2/csrc/mps/kernels/double_scores.h"
#include "k2/csrc/mps/kernels/path_sums.h"

// For kernels only.  In some kernels, a threadgroup goes through the batches of
// states of one FSA, and a thread adds up the arcs of each state.  In the other
// kernels, several threadgroups go through an FSA's arcs; see Part.

// The batches of states, and the FSA that a threadgroup works on.
struct Batches {
  // [num_batches * num_fsas + 1], where each FSA's part of each batch begins in
  // `states`
  device const int *begins;
  device const int *states;  // [num_states], the idx01 of each state
  int num_fsas, num_batches, fsa;
  bool descending;
};

// An arc as seen from the state whose score is computed.
struct IncidentArc {
  int state;  // the idx01 of the state at the other end
  float score;
  int arc;  // the index of the arc
};

// For each state, the arcs that leave it.
struct LeavingArcs {
  device const Arc *arcs;
  device const int *begins;  // [num_states + 1], positions in arcs
};

inline int IndexOf(LeavingArcs, int position) { return position; }

inline IncidentArc Seen(LeavingArcs, Arc arc, int state, int index) {
  return IncidentArc{state - arc.src_state + arc.dest_state, arc.score, index};
}

// For each state, the arcs that enter it.
struct IncomingArcs {
  device const Arc *arcs;
  device const int *begins;  // [num_states + 1], positions in list
  device const int *list;    // [num_arcs], indexes of arcs
};

inline int IndexOf(IncomingArcs arcs, int position) {
  return arcs.list[position];
}

inline IncidentArc Seen(IncomingArcs, Arc arc, int state, int index) {
  return IncidentArc{state - arc.dest_state + arc.src_state, arc.score, index};
}

template <typename Arcs>
inline IncidentArc GetArc(Arcs arcs, int state, int position) {
  const int index = IndexOf(arcs, position);
  return Seen(arcs, arcs.arcs[index], state, index);
}

// A state, and the positions of its arcs, begin to end - 1.  If `state` is
// negative, there is no state.
struct Node {
  int state, begin, end;
};

// It takes five loads to get from a batch to the arcs of a state, and each load
// needs the result of the previous load.  So a thread loads five batches ahead:
// between two batches, it does one of the five loads for each of the next five
// batches.  The functions Load...() compute nothing from the loaded values, so
// no load waits for another load.

// The states of the FSA in a batch: elements begin to end - 1 of
// Batches::states.
struct Range {
  int begin, end;
};

// A state, and the indexes of its first arcs.  If the state has fewer arcs, the
// other indexes are -1.
struct Indexes {
  Node node;
  int of_arcs[kDsArcsOfThread];
};

// The state that a thread computes in a batch, with its first arcs.
struct Work {
  Indexes indexes;
  Arc arcs[kDsArcsOfThread];
};

template <typename Arcs>
inline IncidentArc ArcOf(Arcs arcs, Work work, int i) {
  return Seen(arcs, work.arcs[i], work.indexes.node.state,
              work.indexes.of_arcs[i]);
}

inline Range LoadRange(Batches batches, int n) {
  if (n < 0 || n >= batches.num_batches) return Range{0, 0};
  const int batch = batches.descending ? batches.num_batches - 1 - n : n,
            place = batch * batches.num_fsas + batches.fsa;
  return Range{batches.begins[place], batches.begins[place + 1]};
}

inline int LoadState(Batches batches, Range range, int index) {
  return range.begin + index < range.end ? batches.states[range.begin + index]
                                         : -1;
}

template <typename Arcs>
inline Node LoadNode(Arcs arcs, int state) {
  if (state < 0) return Node{-1, 0, 0};
  return Node{state, arcs.begins[state], arcs.begins[state + 1]};
}

template <typename Arcs>
inline Indexes LoadIndexes(Arcs arcs, Node node) {
  Indexes ans;
  ans.node = node;
#pragma unroll
  for (int i = 0; i < kDsArcsOfThread; ++i) {
    const int position = node.begin + i;
    ans.of_arcs[i] = position < node.end ? IndexOf(arcs, position) : -1;
  }
  return ans;
}

template <typename Arcs>
inline Work LoadArcs(Arcs arcs, Indexes indexes) {
  const Arc none = {0, 0, 0, 0.0f};
  Work ans;
  ans.indexes = indexes;
#pragma unroll
  for (int i = 0; i < kDsArcsOfThread; ++i) {
    const int index = indexes.of_arcs[i];
    ans.arcs[i] = index >= 0 ? arcs.arcs[index] : none;
  }
  return ans;
}

// Calls visitor.Visit() for the thread's states in batches `first` to
// `last` - 1, with a barrier after each batch.
template <typename Arcs, typename Visitor>
METAL_FUNC void ForEachState(Batches batches, Arcs arcs, int first, int last,
                             int thread_index, int num_threads,
                             Visitor visitor) {
  constexpr int kLoads = 5;
  Range range = {0, 0};
  int state = -1;
  Node node = {-1, 0, 0};
  Indexes indexes = LoadIndexes(arcs, node);
  Work next = LoadArcs(arcs, indexes);
  for (int n = first - kLoads; n < last; ++n) {
    Work work = next;
    next = LoadArcs(arcs, indexes);
    indexes = LoadIndexes(arcs, node);
    node = LoadNode(arcs, state);
    state = LoadState(batches, range, thread_index);
    range = LoadRange(batches, n + kLoads);
    if (n < first) continue;
    // If a batch has more states than there are threads, a thread has several
    // states.
    for (int index = thread_index; work.indexes.node.state >= 0;) {
      visitor.Visit(work);
      index += num_threads;
      work = LoadArcs(
          arcs,
          LoadIndexes(arcs,
                      LoadNode(arcs, LoadState(batches, LoadRange(batches, n),
                                               index))));
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_device);
  }
}

// A threadgroup's part of an FSA, if params.num_parts threadgroups work on each
// FSA.
struct Part {
  // The FSA, the FSA's first state, and the state after the FSA's last state.
  int fsa, begin, end;
  // Thread i processes the arcs (or states) first + i, first + i + step, ... of
  // the FSA.
  int first, step;
};

inline Part GetPart(constant DoubleScoresParams &params,
                    device const int *state_begins, uint group,
                    uint num_threads) {
  const int fsa = static_cast<int>(group) / params.num_parts;
  return Part{fsa, state_begins[fsa], state_begins[fsa + 1],
              static_cast<int>(group) % params.num_parts *
                  static_cast<int>(num_threads),
              params.num_parts * static_cast<int>(num_threads)};
}

// The score of a state in the log semiring.
typedef PathSum<TwoFloat, TwoFloat> LogScore;

// The score of a state in the tropical semiring.
struct BestScore {
  TwoFloat score;
  // 1 if the state's best path begins in the initial state, else 0.  If the
  // score is -infinity, this member tells whether any path reaches the state.
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

// The outputs of the kernel double_scores.
template <typename Score>
struct Scores {
  device Score *states;   // [num_states]
  device float *totals;   // [num_fsas], -infinity for an FSA without states
  device int *best_arcs;  // [num_states], each state's best arc (the last one
                          // if several are equally good), or -1; only in the
                          // tropical semiring
};

// Returns the score of a state, which is the sum over its arcs.
//
// from   the scores of the states at the other ends of the state's first arcs
template <typename Arcs>
inline LogScore SumOfArcs(Arcs arcs, Scores<LogScore> scores, Work work,
                          thread const LogScore *from) {
  const Node node = work.indexes.node;
  LogScore exps[kDsArcsOfThread];
  TwoFloat max = {-INFINITY, 0.0f};
#pragma unroll
  for (int i = 0; i < kDsArcsOfThread; ++i) {
    exps[i] = ExpOf<LogScore>(work.arcs[i].score);
    // An arc that does not exist must not change the maximum, which may be NaN.
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

// Returns the logarithm of the posterior of an arc.  `forward` is the forward
// score of the arc's source, and `backward` is the backward score of the arc's
// destination.  If there is no path, the logarithm is -infinity.
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

// Returns a * b, rounded once.  If this product is not finite, returns
// a.high * b.
inline float Scale(TwoFloat a, float b) {
  const float product = Mul(a, TwoFloat{b, 0.0f}).high;
  return metal::fabs(product) < INFINITY ? product : a.high * b;
}

#endif  // K2_CSRC_MPS_KERNELS_DOUBLE_BATCHES_H_
