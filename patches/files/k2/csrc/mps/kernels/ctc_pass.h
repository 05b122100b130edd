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

// For kernels only: CTC without a lattice.
//
// intersect_dense makes a lattice of decoding graphs and b_scores.  These
// kernels compute the log-sum over the paths of that lattice, and its gradient,
// but never make the lattice.
//
// A state of the lattice is a state of a graph at a time 0 <= t <= R, where R
// is the number of rows of the sequence.  An arc leads from time t to time t
// + 1. Its score is the score of the graph's arc plus the score of its symbol
// in row t of b_scores.
//
//   ctc_best_scores   scores the best path from the start to each state (the
//                     forward pass) and from each state to the end (backward),
//   ctc_best_path     finds the best path where rounding may prune it,
//   ctc_keep          tells which arcs k2 keeps in its pruned lattice,
//   ctc_sums          sums over the paths of kept arcs, forward and backward,
//   ctc_gradient      sums posteriors of arcs for each element of b_scores,
//   ctc_block_gradient  does so where ctc_sums wrote checkpoints only, see
//                     ctc_blocks.h,
//   ctc_arc_gradient  sums posteriors of arcs for each arc of the graphs.
//
// The recursions are those of A. Graves et al., Connectionist Temporal
// Classification, 2006, section 4.1, on any graph in place of a chain.
//
// One thread writes each result, and adds in one order: all runs give the same
// bits.

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

// Returns the index, among the words of a frame, of the word that has the bit
// of an arc.  Graphs share no word.
inline int WordOf(int fsa, Fsa info, int arc_of_fsa) {
  return info.arc_begin / 32 + fsa + arc_of_fsa / 32;
}

inline bool HasColumn(constant CtcParams &params, int label) {
  return label >= -1 && label + 1 < params.num_columns;
}

inline float ScoreAt(constant CtcParams &params, device const float *b_scores,
                     int row, int label) {
  const bool exists = HasColumn(params, label);
  const float score = b_scores[row * params.stride + (exists ? label + 1 : 0)];
  return exists ? score : -INFINITY;
}

// Returns what is added to the score of a penalized symbol at time t: more the
// later, 0 in the middle.  The fma() with 0 rounds the product by itself, so
// that the compiler cannot contract it with the addition that follows.
inline float PenaltyAt(constant CtcParams &params, Fsa info, int t) {
  return metal::fma(static_cast<float>(t - ((info.num_rows - 1) >> 1)),
                    params.penalty, 0.0f);
}

// What a thread reads of one FSA, and which thread it is.
struct Input {
  Fsa fsa;
  device const Arc *arcs;  // of this FSA
  device const uchar *penalized;
  device const float *b_scores;
  device const uint *kept;
  int first_word;
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
               static_cast<int>(thread_index),
               static_cast<int>(num_threads)};
}

struct Direction {
  device const int *arc_begins;  // of each state of the FSA
  device const int *incoming;  // forward: the list that arc_begins points into
  bool forward;                // backward: arc_begins points into all arcs
};

// An arc: the state at its other end, and the parts of its score.
struct Step {
  int other;
  int column;  // of b_scores; -1 if there is none, or no arc
  int arc;     // of its FSA
  float score;
  bool penalized;
};

inline Step GetStep(constant CtcParams &params, Input input,
                    Direction direction, int position) {
  const int i = (direction.forward ? direction.incoming[position] : position) -
                input.fsa.arc_begin;
  const Arc arc = input.arcs[i];
  return Step{direction.forward ? arc.src_state : arc.dest_state,
              HasColumn(params, arc.label) ? arc.label + 1 : -1, i, arc.score,
              params.has_penalties && input.penalized[i]};
}

// What the arcs from one time to the next share.
struct Frame {
  int first_word;  // of this FSA in `kept`
  int row_begin;   // in b_scores
  float penalty;
};

inline Frame GetFrame(constant CtcParams &params, Input input, int t) {
  return Frame{t * params.num_words + input.first_word,
               (input.fsa.first_row + t) * params.stride,
               PenaltyAt(params, input.fsa, t)};
}

// What memory has for the score of an arc in a frame.
struct Loaded {
  uint kept;  // a bit for each arc
  float score;
};

inline float LoadScore(Input input, Frame frame, Step step) {
  const int column = metal::max(step.column, 0);  // NOLINT
  return input.b_scores[frame.row_begin + column];
}

inline Loaded Load(Input input, Frame frame, Step step, BestScore) {
  return Loaded{0, LoadScore(input, frame, step)};
}
template <typename Sum>
inline Loaded Load(Input input, Frame frame, Step step, Sum) {
  return Loaded{input.kept[frame.first_word + step.arc / 32],
                LoadScore(input, frame, step)};
}

// Returns the score of a symbol.  MaxOfArcs() adds the arc's score, since the
// order of additions decides which arcs are kept.
inline float ScoreOf(Loaded loaded, Frame, Step step, BestScore) {
  return step.column < 0 ? -INFINITY : loaded.score;
}

// Returns the score of an arc in a frame; -inf if the arc is not kept.
template <typename Sum>
inline float ScoreOf(Loaded loaded, Frame frame, Step step, Sum) {
  const bool is_kept = (loaded.kept >> (step.arc % 32) & 1) != 0;
  const float sum = step.score + loaded.score,
              score = step.penalized ? sum + frame.penalty : sum;
  return is_kept && step.column >= 0 ? score : -INFINITY;
}

template <typename Sum>
inline float ScoreIn(Input input, Frame frame, Step step, Sum none) {
  return ScoreOf(Load(input, frame, step, none), frame, step, none);
}

// NaN is never the largest.
inline float MaxOfArcs(float r, BestScore state, Step step, float score) {
  const float sum = state.r + step.score + score;
  return sum > r ? sum : r;
}
template <typename R, typename Sum>
inline R MaxOfArcs(R r, Sum state, Step, float score) {
  return MaxOfArcs(r, state, score);
}

// Returns the largest score of a lane's arcs of a state.  The first kSteps arcs
// are in `steps` and `scores`; the others, number begin, begin + width, ...
// below end, are in memory.
template <int kSteps, typename Sum, typename Sums>
inline auto MaxOfState(constant CtcParams &params, Input input,
                       Direction direction, Frame frame,
                       thread const Step *steps, thread const float *scores,
                       int begin, int end, Sums previous, Sum none)
    -> decltype(none.r) {
  auto r = None(none.r);
  for (int i = 0; i < kSteps; ++i)
    r = MaxOfArcs(r, previous[steps[i].other], steps[i], scores[i]);
  for (int i = begin; i < end; i += params.width) {
    const Step step = GetStep(params, input, direction, i);
    r = MaxOfArcs(r, previous[step.other], step,
                  ScoreIn(input, frame, step, none));
  }
  return MaxOfLanes(r, params.width);
}

// Returns what a state has after a frame; the arguments are MaxOfState()'s.
template <int kSteps, typename Sums>
inline BestScore SumOfState(constant CtcParams &params, Input input,
                            Direction direction, Frame frame,
                            thread const Step *steps,
                            thread const float *scores, int begin, int end,
                            Sums previous, BestScore none) {
  return BestScore{MaxOfState<kSteps>(params, input, direction, frame, steps,
                                      scores, begin, end, previous, none)};
}
template <int kSteps, typename Sum, typename Sums>
inline Sum SumOfState(constant CtcParams &params, Input input,
                      Direction direction, Frame frame,
                      thread const Step *steps, thread const float *scores,
                      int begin, int end, Sums previous, Sum none) {
  const auto r = MaxOfState<kSteps>(params, input, direction, frame, steps,
                                    scores, begin, end, previous, none);
  auto m = Zero(none.m);
  for (int i = 0; i < kSteps; ++i)
    m = SumOfArcs(m, r, previous[steps[i].other], scores[i]);
  for (int i = begin; i < end; i += params.width) {
    const Step step = GetStep(params, input, direction, i);
    m = SumOfArcs(m, r, previous[step.other],
                  ScoreIn(input, frame, step, none));
  }
  return MakeLogSum(r, SumOfLanes(m, params.width));
}

// Takes `num_steps` steps of one FSA in one direction.
//
// time             the time of `previous`
// previous, next   what the states have at the last time and at this time; the
//                  two change places after each step
// visitor          all threads call Leave(time, previous, next) before each
//                  step, while `next` still has the time before `previous`;
//                  one thread calls Take(time, state, sum) for each new sum
template <typename Sum, typename Sums, typename Visitor>
METAL_FUNC void Pass(constant CtcParams &params, Input input,
                     Direction direction, int time, int num_steps,
                     Sums previous, Sums next, Visitor visitor) {
  const Sum none = ToSum(-INFINITY, Sum());
  const int num_states = input.fsa.num_states, width = params.width,
            lane = input.thread_index % width,
            first_state = input.thread_index / width,
            states_at_once = input.num_threads / width;

  // A lane keeps the first arcs of its first state in registers.
  const bool has_state = first_state < num_states;
  const int arc_begin =
                has_state ? direction.arc_begins[first_state] + lane : 0,
            arc_end = has_state ? direction.arc_begins[first_state + 1] : 0;
  Step steps[kCtcArcsOfLane];
  float scores[kCtcArcsOfLane];
  for (int i = 0; i < kCtcArcsOfLane; ++i) {
    const int position = arc_begin + i * width;
    const Step no_arc = {0, -1, 0, 0.0f, false};
    steps[i] = position < arc_end ? GetStep(params, input, direction, position)
                                  : no_arc;
  }
  const int more_arcs = arc_begin + kCtcArcsOfLane * width;

  // The loop loads the scores of a frame one frame ahead: no other part of a
  // frame waits for device memory.  ScoreOf() comes at the end of the frame,
  // lest the frame wait for the loads.
  const int change = direction.forward ? 1 : -1;
  int t = direction.forward ? time : time - 1;
  Frame frame = GetFrame(params, input, 0);
  for (int n = 0; n <= num_steps; ++n) {
    const Frame next_frame = GetFrame(params, input, n < num_steps ? t : 0);
    Loaded loaded[kCtcArcsOfLane];
    for (int i = 0; i < kCtcArcsOfLane; ++i)
      loaded[i] = Load(input, next_frame, steps[i], none);

    if (n > 0) {
      metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup |
                                 metal::mem_flags::mem_device);
      visitor.Leave(time, previous, next);
      time += change;
      // All lanes of a simdgroup go through this loop equally often.
      for (int s = first_state; s - first_state < num_states;
           s += states_at_once) {
        const bool is_state = s < num_states;
        const Sum sum =
            s == first_state
                ? SumOfState<kCtcArcsOfLane>(params, input, direction, frame,
                                             steps, scores, more_arcs, arc_end,
                                             previous, none)
                : SumOfState<0>(params, input, direction, frame, steps, scores,
                                is_state ? direction.arc_begins[s] + lane : 0,
                                is_state ? direction.arc_begins[s + 1] : 0,
                                previous, none);
        if (lane == 0 && is_state) {
          next[s] = sum;
          visitor.Take(time, s, sum);
        }
      }
      const Sums last = previous;
      previous = next;
      next = last;
    }
    frame = next_frame;
    for (int i = 0; i < kCtcArcsOfLane; ++i)
      scores[i] = ScoreOf(loaded[i], frame, steps[i], none);
    t += change;
  }
}

// Writes what the states have before any step: paths begin in state `initial`.
template <typename Sum, typename Sums, typename Visitor>
inline void Begin(Input input, int initial, int time, Sums sums,
                  Visitor visitor) {
  for (int s = input.thread_index; s < input.fsa.num_states;
       s += input.num_threads) {
    const Sum sum = ToSum(s == initial ? 0.0f : -INFINITY, Sum());
    sums[s] = sum;
    visitor.Take(time, s, sum);
  }
}

// Writes what the states have at a checkpoint.
template <typename Sum, typename Sums, typename Visitor>
inline void Resume(Input input, device const Sum *checkpoint, int time,
                   Sums sums, Visitor visitor) {
  for (int s = input.thread_index; s < input.fsa.num_states;
       s += input.num_threads) {
    const Sum sum = checkpoint[s];
    sums[s] = sum;
    visitor.Take(time, s, sum);
  }
}

#endif  // K2_CSRC_MPS_KERNELS_CTC_PASS_H_
