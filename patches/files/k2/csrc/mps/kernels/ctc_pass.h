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

#ifndef K2_CSRC_MPS_KERNELS_CTC_PASS_H_
#define K2_CSRC_MPS_KERNELS_CTC_PASS_H_

#include "k2/csrc/mps/kernels/arc.h"
#include "k2/csrc/mps/kernels/ctc.h"
#include "k2/csrc/mps/kernels/ctc_sums.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// For kernels only: CTC without a lattice.
//
// intersect_dense makes a lattice from decoding graphs and b_scores.  The
// kernels of CTC compute the log-sum over the paths of that lattice, and the
// gradient of this log-sum, without the lattice.  The recursions are those of
// A. Graves et al., Connectionist Temporal Classification, 2006, section 4.1,
// but for any graph, not only for a chain of symbols.  For a row t = 0, 1,
// ..., T - 1 and an arc from src to dest with a symbol,
//
//   y(t, arc)      = arc.score + b_scores[t][symbol]
//   alpha(t + 1, dest) = log sum exp(alpha(t, src) + y(t, arc))
//   beta(t, src)       = log sum exp(y(t, arc) + beta(t + 1, dest))
//
// where the sums are over the arcs that k2 keeps in its pruned lattice.
// alpha(0) is 0 in the first state, and beta(T) is 0 in the last state.
// beta(0) of the first state is the score.  The derivative of the score with
// respect to b_scores[t][symbol] is the sum, over the arcs with this symbol, of
// exp(alpha(t, src) + y(t, arc) + beta(t + 1, dest) - score).
//
//   ctc_best_scores   computes alpha and beta with max instead of log sum exp,
//   ctc_best_path     finds the best path if rounding may prune it,
//   ctc_keep          finds the arcs that k2 keeps,
//   ctc_sums          computes alpha and beta,
//   ctc_gradient      computes the gradient of b_scores,
//   ctc_block_gradient  computes the gradient of b_scores if ctc_sums kept only
//                     checkpoints, see ctc_blocks.h,
//   ctc_arc_gradient  computes the gradient of the scores of the graphs' arcs.
//
// The terms of each sum are added in a fixed order, so all runs give bit for
// bit the same results.

// One FSA of the graphs and its sequence.
struct Fsa {
  int state_begin, num_states;  // among the states of all graphs
  int arc_begin, num_arcs;      // among the arcs of all graphs
  int first_row, num_rows;      // of b_scores
};

inline Fsa GetFsa(int fsa, device const int *state_begins,
                  device const int *leaving_begins,
                  device const int *b_begins) {
  const int begin = state_begins[fsa], end = state_begins[fsa + 1],
            arc_begin = leaving_begins[begin];
  return Fsa{begin,         end - begin,
             arc_begin,     leaving_begins[end] - arc_begin,
             b_begins[fsa], b_begins[fsa + 1] - b_begins[fsa]};
}

// Returns which word of a row has the bit of an arc.  No two graphs share a
// word.
inline int WordOf(int fsa, Fsa info, int arc_of_fsa) {
  return info.arc_begin / kSimdWidth + fsa + arc_of_fsa / kSimdWidth;
}

inline bool HasColumn(constant CtcParams &params, int label) {
  return uint(label) + 1u < uint(params.num_columns);
}

inline float ScoreAt(constant CtcParams &params, device const float *b_scores,
                     int row, int label) {
  const bool exists = HasColumn(params, label);
  const float score = b_scores[row * params.stride + (exists ? label + 1 : 0)];
  return exists ? score : -INFINITY;
}

// Returns the number to add to the score of a penalized arc in a row.  The
// number is 0 in the middle row, and grows by params.penalty from each row
// to the next.  The fma() with 0 rounds the product, so that the compiler
// cannot fuse the product with an addition that follows.
inline float PenaltyAt(constant CtcParams &params, Fsa info, int row) {
  return metal::fma(static_cast<float>(row - ((info.num_rows - 1) >> 1)),
                    params.penalty, 0.0f);
}

// The data of one FSA that a thread reads, and the index of the thread.
struct Input {
  Fsa fsa;
  device const Arc *arcs;  // of this FSA
  device const uchar *penalized;
  device const float *b_scores;
  device const uint *kept;
  int first_word;
  int width;  // as in CtcParams
  int thread_index, num_threads;
};

inline Input GetInput(constant CtcParams &params, int index, Fsa fsa,
                      device const Arc *arcs, device const uchar *penalized,
                      device const float *b_scores, device const uint *kept,
                      uint thread_index, uint num_threads) {
  return Input{fsa,
               arcs + fsa.arc_begin,
               penalized + (params.has_penalties ? fsa.arc_begin : 0),
               b_scores,
               kept,
               WordOf(index, fsa, 0),
               params.width,
               static_cast<int>(thread_index),
               static_cast<int>(num_threads)};
}

// The arcs that a pass follows.  The forward pass follows the arcs that enter
// each state, and the backward pass follows the arcs that leave each state.
struct Direction {
  device const int *arc_begins;  // where each state's arcs begin: in the list
                                 // `incoming` (forward), or among all arcs
  device const int *incoming;    // used in the forward pass only
  bool forward;
};

// An arc as seen from the state whose sum a pass computes.
struct IncidentArc {
  int state;   // the state at the other end
  int column;  // the column of b_scores; 0 if there is no column, or no arc
  int word;    // the index of the word of `kept` that has the arc's bit
  uint bit;    // this bit; 0 if there is no column, or no arc
  float score;
  bool penalized;
};

inline IncidentArc GetArc(constant CtcParams &params, Input input,
                          Direction direction, int position) {
  const int i = (direction.forward ? direction.incoming[position] : position) -
                input.fsa.arc_begin;
  const Arc arc = input.arcs[i];
  const bool exists = HasColumn(params, arc.label);
  return IncidentArc{direction.forward ? arc.src_state : arc.dest_state,
                     exists ? arc.label + 1 : 0,
                     i / kSimdWidth,
                     exists ? 1u << (i % kSimdWidth) : 0u,
                     arc.score,
                     params.has_penalties && input.penalized[i]};
}

// The values that all arcs of an FSA share in a row.
struct Row {
  int first_word;  // the row's first word of this FSA in `kept`
  int begin;       // where the row begins in b_scores
  float penalty;
};

inline Row GetRow(constant CtcParams &params, Input input, int row) {
  return Row{row * params.num_words + input.first_word,
             (input.fsa.first_row + row) * params.stride,
             PenaltyAt(params, input.fsa, row)};
}

// What Load() reads for an arc in a row.
struct Loaded {
  uint kept;  // the word of `kept` that has the arc's bit
  float score;
};

template <typename Sum>
inline Loaded Load(Input input, Row row, IncidentArc arc) {
  const uint kept =
      HasAllPaths<Sum>() ? input.kept[row.first_word + arc.word] : 0;
  return Loaded{kept, input.b_scores[row.begin + arc.column]};
}

// Returns the sum over one path, which consists of one arc.  Returns an empty
// sum if the arc is not kept.  A result of type BestScore is the score of the
// symbol alone.  Magnitude() adds the arc's own score before the symbol's
// score, because the order of the additions can change which arcs are kept.
//
// may_be_large   false promises: if the arc is kept, IsLarge() returns false
//                for the arc's score
template <typename Sum>
inline Sum SumOfArc(Loaded loaded, Row row, IncidentArc arc, bool may_be_large);
template <>
inline BestScore SumOfArc<BestScore>(Loaded loaded, Row, IncidentArc arc,
                                     bool) {
  return BestScore{arc.bit == 0 ? -INFINITY : loaded.score};
}
// Returns whether an arc is kept, and has a column.
inline bool IsKept(Loaded loaded, IncidentArc arc) {
  return (loaded.kept & arc.bit) != 0;
}
// Returns the score of an arc in a row.
inline float ScoreIn(Loaded loaded, Row row, IncidentArc arc) {
  const float sum = arc.score + loaded.score;
  return arc.penalized ? sum + row.penalty : sum;
}
template <typename T>
inline PathSum<float, T> ExpOfArc(Loaded loaded, Row row, IncidentArc arc,
                                  bool may_be_large) {
  const float score = ScoreIn(loaded, row, arc);
  PathSum<float, T> ans =
      may_be_large ? FloatExp<T>(score) : ExpOfRest<T>(score);
  if (!IsKept(loaded, arc)) ans.exponent = -INFINITY;
  return ans;
}
template <>
inline FloatSum SumOfArc<FloatSum>(Loaded loaded, Row row, IncidentArc arc,
                                   bool may_be_large) {
  return ExpOfArc<float>(loaded, row, arc, may_be_large);
}
template <>
inline DoubleSum SumOfArc<DoubleSum>(Loaded loaded, Row row, IncidentArc arc,
                                     bool may_be_large) {
  return ExpOfArc<TwoFloat>(loaded, row, arc, may_be_large);
}

template <typename Sum>
inline Sum SumOfArcIn(constant CtcParams &params, Input input, int t,
                      IncidentArc arc) {
  const Row row = GetRow(params, input, t);
  return SumOfArc<Sum>(Load<Sum>(input, row, arc), row, arc, true);
}

// Extends the best path of a state by an arc, and returns the score of the
// extended path.  For a PathSum, returns the exponent of the extended sum.
inline float Magnitude(BestScore state, IncidentArc arc, BestScore sum_of_arc) {
  return state.max + arc.score + sum_of_arc.max;
}
template <typename T>
inline float Magnitude(PathSum<float, T> state, IncidentArc,
                       PathSum<float, T> sum_of_arc) {
  return AddExponents(state.exponent, sum_of_arc.exponent).high;
}

// Returns the largest number of states for which a threadgroup of `threads`
// threads keeps the sums of an FSA's states in threadgroup memory.
constexpr int CachedStates(int threads) {
  return threads * kCtcCachedStatesOfThread < kCtcMaxCachedStates
             ? threads * kCtcCachedStatesOfThread
             : kCtcMaxCachedStates;
}

// The part of a state's arcs on which one lane works.  The first kArcs arcs are
// in `arcs` and `sums`.  The other arcs are in memory, at positions begin,
// begin + width, ... below `end`.
template <typename Sum, int kArcs>
struct ArcsOfLane {
  thread const IncidentArc *arcs;
  thread const Sum *sums;  // see SumOfArc()
  int begin, end;
};

// Returns the sum of a state after a row, over the arcs of all lanes that
// share the state.  `max` is the largest Magnitude() of these arcs.
template <int kArcs, typename Sums>
inline BestScore SumOfPaths(constant CtcParams &, Input, Direction, int,
                            ArcsOfLane<BestScore, kArcs>, Sums, float max) {
  return BestScore{max};
}
template <int kArcs, typename Sums, typename T>
inline PathSum<float, T> SumOfPaths(constant CtcParams &params, Input input,
                                    Direction direction, int t,
                                    ArcsOfLane<PathSum<float, T>, kArcs> lane,
                                    Sums previous, float max) {
  T sum = {};
  // If max is not finite, there is nothing to add.
  if (metal::fabs(max) < INFINITY) {
    for (int i = 0; i < kArcs; ++i)
      sum = AddPaths(sum, max, previous[lane.arcs[i].state], lane.sums[i]);
    for (int i = lane.begin; i < lane.end; i += input.width) {
      const IncidentArc arc = GetArc(params, input, direction, i);
      sum = AddPaths(sum, max, previous[arc.state],
                     SumOfArcIn<PathSum<float, T>>(params, input, t, arc));
    }
  }
  return MakeSum(max, SumOfLanes(sum, input.width));
}

// Returns the sum of a state after a row.  A Magnitude() of NaN is ignored.
template <typename Sum, int kArcs, typename Sums>
inline Sum SumOfState(constant CtcParams &params, Input input,
                      Direction direction, int t, ArcsOfLane<Sum, kArcs> lane,
                      Sums previous) {
  float max = -INFINITY;
  for (int i = 0; i < kArcs; ++i) {
    const float size =
        Magnitude(previous[lane.arcs[i].state], lane.arcs[i], lane.sums[i]);
    max = size > max ? size : max;
  }
  for (int i = lane.begin; i < lane.end; i += input.width) {
    const IncidentArc arc = GetArc(params, input, direction, i);
    const Sum sum_of_arc = SumOfArcIn<Sum>(params, input, t, arc);
    const float size = Magnitude(previous[arc.state], arc, sum_of_arc);
    max = size > max ? size : max;
  }
  return SumOfPaths(params, input, direction, t, lane, previous,
                    MaxOfLanes(max, input.width));
}

// Goes through `num_rows` rows of one FSA in one direction.
//
// kAhead           the number of rows whose scores a lane loads at once; each
//                  of these rows takes registers
// row              the row of `previous`
// previous, next   the sums of the states in the previous row and in the new
//                  row; the two change places after each row
// visitor          all threads call Leave(row, previous, next) before each
//                  row, while `next` still has the sums of the row before
//                  `previous`; one thread calls Take(row, state, sum) for
//                  each new sum
template <typename Sum, int kAhead, typename Sums, typename Visitor>
METAL_FUNC void Pass(constant CtcParams &params, Input input,
                     Direction direction, int row, int num_rows, Sums previous,
                     Sums next, Visitor visitor) {
  if (num_rows == 0) return;
  const int num_states = input.fsa.num_states, width = input.width,
            lane = input.thread_index % width,
            first_state = input.thread_index / width,
            states_at_once = input.num_threads / width;

  // A lane keeps the first arcs of its first state in registers.  Arrays stay
  // in registers only if all loops over kCtcArcsOfLane are unrolled.
  const bool has_state = first_state < num_states;
  const int arc_begin =
                has_state ? direction.arc_begins[first_state] + lane : 0,
            arc_end = has_state ? direction.arc_begins[first_state + 1] : 0;
  IncidentArc arcs[kCtcArcsOfLane];
#pragma unroll
  for (int i = 0; i < kCtcArcsOfLane; ++i) {
    const int position = arc_begin + i * width;
    const IncidentArc no_arc = {0, 0, 0, 0, 0.0f, false};
    arcs[i] = position < arc_end ? GetArc(params, input, direction, position)
                                 : no_arc;
  }
  const int more_arcs = arc_begin + kCtcArcsOfLane * width;

  // The loop loads the scores of kAhead rows while it computes the kAhead
  // rows before them, so no row waits for device memory.  The calls of
  // SumOfArc() need the loaded scores, so they come at the end of the loop.
  const int change = direction.forward ? 1 : -1,
            first = direction.forward ? row : row - 1;
  Sum one_arc[kAhead][kCtcArcsOfLane];
  for (int n = -kAhead; n < num_rows; n += kAhead) {
    Row ahead[kAhead];
    Loaded loaded[kAhead][kCtcArcsOfLane];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int m = metal::min(n + kAhead + k, num_rows - 1);  // NOLINT
      ahead[k] = GetRow(params, input, first + change * m);
#pragma unroll
      for (int i = 0; i < kCtcArcsOfLane; ++i)
        loaded[k][i] = Load<Sum>(input, ahead[k], arcs[i]);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (n < 0 || n + k >= num_rows) continue;
      metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup |
                                 metal::mem_flags::mem_device);
      visitor.Leave(row, previous, next);
      row += change;
      const int t = first + change * (n + k);
      // All lanes of a simdgroup run this loop the same number of times.
      for (int s = first_state; s - first_state < num_states;
           s += states_at_once) {
        const bool is_state = s < num_states;
        const Sum sum =
            s == first_state
                ? SumOfState<Sum>(params, input, direction, t,
                                  ArcsOfLane<Sum, kCtcArcsOfLane>{
                                      arcs, one_arc[k], more_arcs, arc_end},
                                  previous)
                : SumOfState<Sum>(
                      params, input, direction, t,
                      ArcsOfLane<Sum, 0>{
                          arcs, one_arc[k],
                          is_state ? direction.arc_begins[s] + lane : 0,
                          is_state ? direction.arc_begins[s + 1] : 0},
                      previous);
        if (lane == 0 && is_state) {
          next[s] = sum;
          visitor.Take(row, s, sum);
        }
      }
      const Sums last = previous;
      previous = next;
      next = last;
    }
    // Large scores are rare.  One branch for all arcs of a simdgroup lets the
    // exponentials of a lane's arcs be computed at the same time.
    bool is_large = false;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
#pragma unroll
      for (int i = 0; i < kCtcArcsOfLane; ++i) {
        one_arc[k][i] = SumOfArc<Sum>(loaded[k][i], ahead[k], arcs[i], false);
        if (HasAllPaths<Sum>())
          is_large =
              is_large || (IsKept(loaded[k][i], arcs[i]) &&
                           IsLarge(ScoreIn(loaded[k][i], ahead[k], arcs[i])));
      }
    }
    if (metal::simd_any(is_large)) {
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
#pragma unroll
        for (int i = 0; i < kCtcArcsOfLane; ++i)
          one_arc[k][i] = SumOfArc<Sum>(loaded[k][i], ahead[k], arcs[i], true);
      }
    }
  }
}

// Writes the sums with which a pass begins.  Paths begin in state `initial`.
template <typename Sum, typename Sums, typename Visitor>
inline void Begin(Input input, int initial, int row, Sums sums,
                  Visitor visitor) {
  for (int s = input.thread_index; s < input.fsa.num_states;
       s += input.num_threads) {
    const Sum sum = OnePath<Sum>(s == initial ? 0.0f : -INFINITY);
    sums[s] = sum;
    visitor.Take(row, s, sum);
  }
}

// Writes the sums of a checkpoint, so that a pass can continue from this
// checkpoint.
template <typename Sum, typename Sums, typename Visitor>
inline void Resume(Input input, device const Sum *checkpoint, int row,
                   Sums sums, Visitor visitor) {
  for (int s = input.thread_index; s < input.fsa.num_states;
       s += input.num_threads) {
    const Sum sum = checkpoint[s];
    sums[s] = sum;
    visitor.Take(row, s, sum);
  }
}

#endif  // K2_CSRC_MPS_KERNELS_CTC_PASS_H_
