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
#include "k2/csrc/mps/kernels/two_float.h"

// For kernels only: passes through the rows of a lattice that is never made.
//
// CTC without a lattice: the log-sum over the paths of the lattice that
// intersect_dense makes of decoding graphs and b_scores, and its gradient.
//
// A state of that lattice is a state of a graph at a time 0 <= t <= R, R the
// number of rows of its sequence.  An arc leads from time t to t + 1 and has
// the score of its graph's arc plus that of its symbol in row t.
//
//   ctc_best_scores   scores the best path from the start to each state (the
//                     forward pass) and from there to the end (backward),
//   ctc_best_path     finds the best path where rounding may prune it,
//   ctc_keep          tells which arcs k2 keeps in its pruned lattice,
//   ctc_sums          sums over the paths of kept arcs, forward and backward,
//   ctc_gradient      sums posteriors of arcs for each element of b_scores,
//   ctc_arc_gradient  the same for each arc of the graphs.
//
// The scores and sums of all states at all times would be most of the memory of
// a step.  So ctc_best_scores and ctc_sums leave those of every 8th, 16th or
// 32nd time only, the checkpoints.  What reads them has a threadgroup for each
// block, the rows from a checkpoint to the next: it computes them again by the
// same operations.  ctc_block_gradient does so in place of ctc_gradient.
//
// The recursions are those of A. Graves et al., Connectionist Temporal
// Classification, 2006, section 4.1, on any graph in place of a chain.
//
// Each result is written by one thread, which adds in one order, so that all
// runs give the same bits.

// One FSA of the graphs and its sequence.
struct Fsa {
  int state_begin, num_states;  // into arrays of states of all graphs
  int arc_begin, num_arcs;      // likewise
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

// Where the bit of an arc of a graph is among the words of a frame.  Graphs
// share no word.
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

// Added to the score of a symbol at time t, which is late behind the middle.  A
// product that is added elsewhere stands in an fma(), so that contraction does
// not change a bit.
inline float PenaltyAt(constant CtcParams &params, Fsa info, int t) {
  return metal::fma(static_cast<float>(t - ((info.num_rows - 1) >> 1)),
                    params.penalty, 0.0f);
}

// The score of the best path.  A sum of one term, so to say.
struct BestScore {
  float r;
};

// A score r + log(m) in single precision; as LogSum of two_float.h.
struct FloatLogSum {
  float r, m;
};

inline float MaxOfArcs(float r, FloatLogSum state, float arc_score) {
  const float score = state.r + arc_score;
  return score > r ? score : r;
}

inline float SumOfArcs(float m, float r, FloatLogSum state, float arc_score) {
  // Without the rounding of state.r + arc_score, r is only a reference.
  const TwoFloat score = TwoSum(state.r, arc_score);
  const float diff = (score.high - r) + score.low;
  return diff > -kMaxDiff ? metal::fma(state.m, metal::precise::exp(diff), m)
                          : m;
}

inline FloatLogSum MakeLogSum(float r, float m) {
  if (!(metal::fabs(r) < INFINITY)) return FloatLogSum{r, 1.0f};
  if (m < kMaxSum) return FloatLogSum{r, m};
  const float score = r + metal::precise::log(m);
  return FloatLogSum{score, m * metal::precise::exp(r - score)};
}

inline BestScore Rounded(BestScore score) { return score; }
inline FloatLogSum Rounded(FloatLogSum sum) { return sum; }
inline FloatLogSum Rounded(LogSum sum) {
  return FloatLogSum{sum.r.high, sum.m.high * metal::precise::exp(sum.r.low)};
}

inline float ScoreOf(FloatLogSum sum) {
  return metal::fabs(sum.r) < INFINITY ? sum.r + metal::precise::log(sum.m)
                                       : sum.r;
}
inline float ScoreOf(LogSum sum) { return Score(sum).high; }

inline BestScore ToSum(float score, BestScore) { return BestScore{score}; }
inline FloatLogSum ToSum(float score, FloatLogSum) {
  return FloatLogSum{score, 1.0f};
}
inline LogSum ToSum(float score, LogSum) { return ToLogSum(score); }

inline float None(float) { return -INFINITY; }
inline TwoFloat None(TwoFloat) { return kNoScore; }
inline float Zero(float) { return 0.0f; }
inline TwoFloat Zero(TwoFloat) { return TwoFloat{0.0f, 0.0f}; }

// The largest, and the sum, of the lanes that share a state.
inline float MaxOfLanes(float r, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2) {
    const float other = metal::simd_shuffle_xor(r, ushort(distance));
    r = other > r ? other : r;
  }
  return r;
}
inline TwoFloat MaxOfLanes(TwoFloat r, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2) {
    const TwoFloat other = {metal::simd_shuffle_xor(r.high, ushort(distance)),
                            metal::simd_shuffle_xor(r.low, ushort(distance))};
    r = IsLess(r, other) ? other : r;
  }
  return r;
}
inline float SumOfLanes(float m, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2)
    m += metal::simd_shuffle_xor(m, ushort(distance));
  return m;
}
inline TwoFloat SumOfLanes(TwoFloat m, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2) {
    const TwoFloat other = {metal::simd_shuffle_xor(m.high, ushort(distance)),
                            metal::simd_shuffle_xor(m.low, ushort(distance))};
    m = AddSameSign(m, other);
  }
  return m;
}

// What the kernels read of one FSA, and the thread that reads it.
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
  device const int *entering;    // what they are into, if forward
  bool forward;                  // else they are into the arcs of all FSAs
};

// The other end of an arc, and what its score is made of.
struct Step {
  int other;
  int column;  // of b_scores; -1 if there is none, or no arc
  int arc;     // of its FSA
  float score;
  bool penalized;
};

inline Step GetStep(constant CtcParams &params, Input input,
                    Direction direction, int position) {
  const int i = (direction.forward ? direction.entering[position] : position) -
                input.fsa.arc_begin;
  const Arc arc = input.arcs[i];
  return Step{direction.forward ? arc.src_state : arc.dest_state,
              HasColumn(params, arc.label) ? arc.label + 1 : -1, i, arc.score,
              params.has_penalties && input.penalized[i]};
}

// A time, as the arcs from there to the next time see it.
struct Frame {
  int first_word;  // of `kept`, of this FSA
  int row_begin;   // in b_scores
  float penalty;
};

inline Frame GetFrame(constant CtcParams &params, Input input, int t) {
  return Frame{t * params.num_words + input.first_word,
               (input.fsa.first_row + t) * params.stride,
               PenaltyAt(params, input.fsa, t)};
}

// What the score of an arc in a frame is made of, as it is in memory.
struct Loaded {
  uint kept;  // a bit for each arc
  float score;
};

inline float LoadScore(Input input, Frame frame, Step step) {
  return input.b_scores[frame.row_begin + metal::max(step.column, 0)];
}

inline Loaded Load(Input input, Frame frame, Step step, BestScore) {
  return Loaded{0, LoadScore(input, frame, step)};
}
template <typename Sum>
inline Loaded Load(Input input, Frame frame, Step step, Sum) {
  return Loaded{input.kept[frame.first_word + step.arc / 32],
                LoadScore(input, frame, step)};
}

// The score of a symbol.  It alone, since the order of additions decides which
// arcs are kept.
inline float ScoreOf(Loaded loaded, Frame, Step step, BestScore) {
  return step.column < 0 ? -INFINITY : loaded.score;
}

// The score of an arc in a frame; -inf if it is not kept.
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

// The arcs of a state that a lane has: the first kSteps ones by `steps` and
// `scores`, number begin, begin + width, ... below end from memory.
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

// Sums over the arcs of a state.
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

// Steps of one FSA in one direction.
//
// time             of the sums in `previous`; of each row from there on
// previous, next   sums of the states at the last time and at this one, which
//                  change places after each step
// visitor          all threads call Leave(time, previous, next) before each
//                  step, when `next` has what `previous` had a step before;
//                  Take(time, state, sum) gets each sum that is made
template <typename Sum, typename Sums, typename Visitor>
METAL_FUNC void Pass(constant CtcParams &params, Input input,
                     Direction direction, int time, int num_steps,
                     Sums previous, Sums next, Visitor visitor) {
  const Sum none = ToSum(-INFINITY, Sum());
  const int num_states = input.fsa.num_states, width = params.width,
            lane = input.thread_index % width,
            first_state = input.thread_index / width,
            states_at_once = input.num_threads / width;

  // Of the thread's first state.
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

  // Those of a frame are loaded one frame ahead, since nothing else in a frame
  // waits for device memory.  Nothing is computed of them before they are
  // needed, lest the frame wait for them.
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

// The sums before any step: paths begin in state `initial`.
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

// Those of a checkpoint.
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

// Checkpoints are the rows of an FSA, what its states have at times 0, 1, ...,
// R, whose time is a multiple of a block's rows, of which there are a power of
// 2: first the backward rows, then the forward ones.  This is where they begin.
inline int RowsBegin(constant CtcParams &params, Fsa fsa, int rows_of_block,
                     bool forward) {
  return (2 * fsa.state_begin + (forward ? fsa.num_states : 0)) *
         (params.num_rows / rows_of_block + 1);
}

// A visitor of Pass() that keeps the rows of times begin, ..., end - 1.
template <typename Rows>
struct KeepRows {
  Rows rows;
  int begin, end, num_states;

  Rows At(int time) const { return rows + (time - begin) * num_states; }

  template <typename Sums>
  void Leave(int, Sums, Sums) const {}

  template <typename Sum>
  void Take(int time, int s, Sum sum) const {
    if (time >= begin && time < end) At(time)[s] = Rounded(sum);
  }
};

// Where a threadgroup has the rows of an FSA that it computes again.
template <typename Sums, typename Rows>
struct BlockMemory {
  Sums sums;     // [4][states], two for each direction
  Rows rows;     // [num_rows][states]
  int num_rows;  // more than visitors need of them for a row
};

// Goes through blocks last, last - 1, ..., first of one FSA.
//
// The backward sums begin with those of the block's last time, and each is
// needed once.  Forward sums are kept, of as many times as there is memory for;
// those of earlier times are computed once more later.
//
// needed    forward rows that the visitor needs for a row, its own and behind
// visitor   of the backward pass; its `forward` has the forward rows, and
//           Finish() is called as Leave() where no step follows
template <typename Sum, typename Memory, typename Visitor>
METAL_FUNC void WalkBlocks(constant CtcParams &params, Input input,
                           Direction forward, Direction backward,
                           int rows_of_block, device const Sum *checkpoints,
                           int first, int last, int needed, Memory memory,
                           Visitor visitor) {
  const Fsa fsa = input.fsa;
  const int num_states = fsa.num_states;
  auto from_start = memory.sums, to_end = from_start + 2 * num_states,
       next = to_end + num_states;
  auto nothing = visitor.forward, keep = visitor.forward;
  nothing.end = 0;
  keep.num_states = num_states;
  int end = metal::min((last + 1) * rows_of_block, fsa.num_rows);
  if (end < fsa.num_rows) {
    Resume<Sum>(input,
                checkpoints + RowsBegin(params, fsa, rows_of_block, false) +
                    (last + 1) * num_states,
                end, to_end, nothing);
  } else {
    Begin<Sum>(input, num_states - 1, end, to_end, nothing);
  }
  for (int block = last; block >= first; --block) {
    const int begin = block * rows_of_block;
    while (end > begin) {
      // NOLINTNEXTLINE
      keep.begin = metal::max(begin, end - (memory.num_rows - needed + 1));
      keep.end = end - 1 + needed;
      Resume<Sum>(input,
                  checkpoints + RowsBegin(params, fsa, rows_of_block, true) +
                      block * num_states,
                  begin, from_start, keep);
      Pass<Sum>(params, input, forward, begin, keep.end - 1 - begin, from_start,
                from_start + num_states, keep);
      visitor.forward = keep;
      Pass<Sum>(params, input, backward, end, end - keep.begin, to_end, next,
                visitor);
      if ((end - keep.begin) % 2 != 0) {
        const auto last_sums = to_end;
        to_end = next;
        next = last_sums;
      }
      end = keep.begin;
      visitor.Finish(end, to_end, next);
    }
  }
}

#endif  // K2_CSRC_MPS_KERNELS_CTC_PASS_H_
