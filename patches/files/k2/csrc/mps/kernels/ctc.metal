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
#include "k2/csrc/mps/kernels/ctc.h"
#include "k2/csrc/mps/kernels/two_float.h"

// CTC without a lattice: the log-sum over the paths of the lattice that
// intersect_dense makes of decoding graphs and b_scores, and its gradient.
//
// A state of that lattice is a state of a graph at a time 0 <= t <= R, R the
// number of rows of its sequence.  An arc leads from time t to t + 1 and has
// the score of its graph's arc plus that of its symbol in row t.
//
//   ctc_best_scores   computes the score of the best path from the start to
//   each
//                     state (forward) and from there to the end (backward),
//   ctc_best_path     finds the best path of an FSA where rounding may prune
//   it, ctc_keep          tells which arcs k2 keeps in its pruned lattice,
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

using namespace metal;

constant float kEpsilon = 1.1920929e-7f;  // a unit in the last place of 1

static_assert(2 * kCtcMaxCachedStates * sizeof(LogSum) <= 32768 &&
                  4 * (kCtcBlockFloats + 2 * kCtcThreads) <= 32768,
              "Metal's limit of threadgroup memory");

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

inline float ScoreAt(constant CtcParams &params, device const float *b_scores,
                     int row, int label) {
  const bool exists = label >= -1 && label + 1 < params.num_columns;
  const float score = b_scores[row * params.stride + (exists ? label + 1 : 0)];
  return exists ? score : -INFINITY;
}

// Added to the score of a symbol at time t, which is late behind the middle.  A
// product that is added elsewhere stands in an fma(), so that contraction does
// not change a bit.
inline float PenaltyAt(constant CtcParams &params, Fsa info, int t) {
  return fma(float(t - ((info.num_rows - 1) >> 1)), params.penalty, 0.0f);
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
  return diff > -kMaxDiff ? fma(state.m, precise::exp(diff), m) : m;
}

inline FloatLogSum MakeLogSum(float r, float m) {
  if (!(fabs(r) < INFINITY)) return FloatLogSum{r, 1.0f};
  if (m < kMaxSum) return FloatLogSum{r, m};
  const float score = r + precise::log(m);
  return FloatLogSum{score, m * precise::exp(r - score)};
}

inline BestScore Rounded(BestScore score) { return score; }
inline FloatLogSum Rounded(FloatLogSum sum) { return sum; }
inline FloatLogSum Rounded(LogSum sum) {
  return FloatLogSum{sum.r.high, sum.m.high * precise::exp(sum.r.low)};
}

inline float ScoreOf(FloatLogSum sum) {
  return fabs(sum.r) < INFINITY ? sum.r + precise::log(sum.m) : sum.r;
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
    const float other = simd_shuffle_xor(r, ushort(distance));
    r = other > r ? other : r;
  }
  return r;
}
inline TwoFloat MaxOfLanes(TwoFloat r, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2) {
    const TwoFloat other = {simd_shuffle_xor(r.high, ushort(distance)),
                            simd_shuffle_xor(r.low, ushort(distance))};
    r = IsLess(r, other) ? other : r;
  }
  return r;
}
inline float SumOfLanes(float m, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2)
    m += simd_shuffle_xor(m, ushort(distance));
  return m;
}
inline TwoFloat SumOfLanes(TwoFloat m, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2) {
    const TwoFloat other = {simd_shuffle_xor(m.high, ushort(distance)),
                            simd_shuffle_xor(m.low, ushort(distance))};
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
               int(thread_index),
               int(num_threads)};
}

struct Direction {
  device const int *arc_begins;  // of each state of the FSA
  device const int *entering;    // what they are into, if forward
  bool forward;                  // else they are into the arcs of all FSAs
};

// The other end of an arc, and what its score is made of.
struct Step {
  int other, label, word;
  uint bit;
  float score;
  bool penalized;
};

inline Step GetStep(constant CtcParams &params, Input input,
                    Direction direction, int position) {
  const int i = (direction.forward ? direction.entering[position] : position) -
                input.fsa.arc_begin;
  const Arc arc = input.arcs[i];
  return Step{direction.forward ? arc.src_state : arc.dest_state,
              arc.label,
              input.first_word + i / 32,
              1u << (i % 32),
              arc.score,
              params.has_penalties && input.penalized[i]};
}

// A time, as the arcs from there to the next time see it.
struct Frame {
  int first_word;  // of `kept`
  int row;
  float penalty;
};

inline Frame GetFrame(constant CtcParams &params, Input input, int t) {
  return Frame{t * params.num_words, input.fsa.first_row + t,
               PenaltyAt(params, input.fsa, t)};
}

// The score of an arc in a frame; -inf if it is not kept.
template <typename Sum>
inline float ScoreIn(constant CtcParams &params, Input input, Frame frame,
                     Step step, Sum) {
  if ((input.kept[frame.first_word + step.word] & step.bit) == 0)
    return -INFINITY;
  const float score =
      step.score + ScoreAt(params, input.b_scores, frame.row, step.label);
  return step.penalized ? score + frame.penalty : score;
}

// That of its symbol alone: the order of additions decides which arcs are kept.
inline float ScoreIn(constant CtcParams &params, Input input, Frame frame,
                     Step step, BestScore) {
  return step.bit == 0 ? -INFINITY
                       : ScoreAt(params, input.b_scores, frame.row, step.label);
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

// The arcs of a state that a lane has: the first ones by `steps` and `scores`,
// number begin, begin + width, ... below end from memory.
struct ArcsOfLane {
  thread const Step *steps;
  thread const float *scores;
  int num_steps, begin, end;
};

template <typename Sum, typename Sums>
inline auto MaxOfState(constant CtcParams &params, Input input,
                       Direction direction, Frame frame, ArcsOfLane arcs,
                       Sums previous, Sum none) -> decltype(none.r) {
  auto r = None(none.r);
  for (int i = 0; i < arcs.num_steps; ++i)
    r = MaxOfArcs(r, previous[arcs.steps[i].other], arcs.steps[i],
                  arcs.scores[i]);
  for (int i = arcs.begin; i < arcs.end; i += params.width) {
    const Step step = GetStep(params, input, direction, i);
    r = MaxOfArcs(r, previous[step.other], step,
                  ScoreIn(params, input, frame, step, none));
  }
  return MaxOfLanes(r, params.width);
}

// Sums over the arcs of a state.
template <typename Sums>
inline BestScore SumOfState(constant CtcParams &params, Input input,
                            Direction direction, Frame frame, ArcsOfLane arcs,
                            Sums previous, BestScore none) {
  return BestScore{
      MaxOfState(params, input, direction, frame, arcs, previous, none)};
}
template <typename Sum, typename Sums>
inline Sum SumOfState(constant CtcParams &params, Input input,
                      Direction direction, Frame frame, ArcsOfLane arcs,
                      Sums previous, Sum none) {
  const auto r =
      MaxOfState(params, input, direction, frame, arcs, previous, none);
  auto m = Zero(none.m);
  for (int i = 0; i < arcs.num_steps; ++i)
    m = SumOfArcs(m, r, previous[arcs.steps[i].other], arcs.scores[i]);
  for (int i = arcs.begin; i < arcs.end; i += params.width) {
    const Step step = GetStep(params, input, direction, i);
    m = SumOfArcs(m, r, previous[step.other],
                  ScoreIn(params, input, frame, step, none));
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
inline void Pass(constant CtcParams &params, Input input, Direction direction,
                 int time, int num_steps, Sums previous, Sums next,
                 Visitor visitor) {
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
    const Step no_arc = {0, -1, input.first_word, 0, 0.0f, false};
    steps[i] = position < arc_end ? GetStep(params, input, direction, position)
                                  : no_arc;
  }
  const int more_arcs = arc_begin + kCtcArcsOfLane * width;

  // Of the first frame; those of others are loaded one frame ahead, since
  // nothing else in a frame waits for device memory.
  const int change = direction.forward ? 1 : -1;
  int t = direction.forward ? time : time - 1;
  Frame frame = GetFrame(params, input, 0);
  for (int n = 0; n <= num_steps; ++n) {
    const Frame next_frame = GetFrame(params, input, n < num_steps ? t : 0);
    float next_scores[kCtcArcsOfLane];
    for (int i = 0; i < kCtcArcsOfLane; ++i)
      next_scores[i] = ScoreIn(params, input, next_frame, steps[i], none);

    if (n > 0) {
      threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
      visitor.Leave(time, previous, next);
      time += change;
      // All lanes of a simdgroup go through this loop equally often.
      for (int s = first_state; s - first_state < num_states;
           s += states_at_once) {
        const bool is_first = s == first_state, is_state = s < num_states;
        const ArcsOfLane arcs = {steps, scores,
                                 is_first ? int(kCtcArcsOfLane) : 0,
                                 is_first   ? more_arcs
                                 : is_state ? direction.arc_begins[s] + lane
                                            : 0,
                                 is_first   ? arc_end
                                 : is_state ? direction.arc_begins[s + 1]
                                            : 0};
        const Sum sum =
            SumOfState(params, input, direction, frame, arcs, previous, none);
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
    for (int i = 0; i < kCtcArcsOfLane; ++i) scores[i] = next_scores[i];
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
inline void WalkBlocks(constant CtcParams &params, Input input,
                       Direction forward, Direction backward, int rows_of_block,
                       device const Sum *checkpoints, int first, int last,
                       int needed, Memory memory, Visitor visitor) {
  const Fsa fsa = input.fsa;
  const int num_states = fsa.num_states;
  auto from_start = memory.sums, to_end = from_start + 2 * num_states,
       next = to_end + num_states;
  auto nothing = visitor.forward, keep = visitor.forward;
  nothing.end = 0;
  keep.num_states = num_states;
  int end = min((last + 1) * rows_of_block, fsa.num_rows);
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
      keep.begin = max(begin, end - (memory.num_rows - needed + 1));
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

struct BestCheckpoints {
  device BestScore *best;
  int begin, num_states, rows_of_block;
  int last_time, final_state;
  device float *total;

  template <typename Sums>
  void Leave(int, Sums, Sums) const {}

  void Take(int time, int s, BestScore score) const {
    if ((time & (rows_of_block - 1)) == 0)
      best[begin + time / rows_of_block * num_states + s] = score;
    if (time == last_time && s == final_state) *total = score.r;
  }
};

// entering_begins  [params.num_states + 1], into `entering`
// entering         [params.num_arcs], arcs by the states that they enter
// best             checkpoints of params.rows_of_best_block rows
// scratch          [params.num_states * (kCtcScratchRows + 4)], for FSAs of
// many
//                  states
// best_totals      [2 * params.num_fsas], the score of an FSA's best path by
// its
//                  backward and its forward scores
//
// There are two threadgroups for each FSA.
[[max_total_threads_per_threadgroup(kCtcMaxThreads)]]
kernel void ctc_best_scores(device const Arc *arcs [[buffer(0)]],
                            device const int *state_begins [[buffer(1)]],
                            device const int *leaving_begins [[buffer(2)]],
                            device const int *entering_begins [[buffer(3)]],
                            device const int *entering [[buffer(4)]],
                            device const float *b_scores [[buffer(5)]],
                            device const int *b_begins [[buffer(6)]],
                            device const uchar *penalized [[buffer(7)]],
                            device BestScore *best [[buffer(8)]],
                            device BestScore *scratch [[buffer(9)]],
                            device float *best_totals [[buffer(10)]],
                            constant CtcParams &params [[buffer(11)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint num_threads [[threads_per_threadgroup]]) {
  threadgroup BestScore cache[2 * kCtcMaxCachedStates];

  const int index = int(group) / 2;
  const bool forward = group % 2 != 0;
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  if (fsa.num_states == 0) {
    if (thread_index == 0) best_totals[group] = -INFINITY;
    return;
  }
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               nullptr, thread_index, num_threads);
  const Direction direction = {
      (forward ? entering_begins : leaving_begins) + fsa.state_begin, entering,
      forward};
  const int last_state = fsa.num_states - 1, rows = params.rows_of_best_block,
            initial = forward ? 0 : last_state,
            begin = forward ? 0 : fsa.num_rows;
  const BestCheckpoints checkpoints = {best,
                                       RowsBegin(params, fsa, rows, forward),
                                       fsa.num_states,
                                       rows,
                                       forward ? fsa.num_rows : 0,
                                       forward ? last_state : 0,
                                       best_totals + group};
  if (fsa.num_states <= kCtcMaxCachedStates) {
    threadgroup BestScore *first = cache, *second = cache + kCtcMaxCachedStates;
    Begin<BestScore>(input, initial, begin, first, checkpoints);
    Pass<BestScore>(params, input, direction, begin, fsa.num_rows, first,
                    second, checkpoints);
  } else {
    device BestScore *of_fsa =
        scratch + 4 * fsa.state_begin + (forward ? 2 * fsa.num_states : 0);
    Begin<BestScore>(input, initial, begin, of_fsa, checkpoints);
    Pass<BestScore>(params, input, direction, begin, fsa.num_rows, of_fsa,
                    of_fsa + fsa.num_states, checkpoints);
  }
}

// As MayCutBestPath() of k2/csrc/best_paths.h.
inline bool MayCutBestPath(float start, float end, Fsa fsa, float beam) {
  const float apart = fabs(end - start), size = fmax(fabs(start), fabs(end));
  return start > -INFINITY && end > -INFINITY &&
         !(beam > apart + (float(fsa.num_rows) + 1.0f) * kEpsilon * size);
}

// The best path of an FSA as far as a simdgroup has followed it.
struct BestPath {
  device int *arcs;  // [params.num_rows]
  int time, state;   // its end
};

// Follows it from its time to `end`, or until it ends before.  rows.At(t) has
// the backward scores of times t.  All simdgroups do the same.
template <typename Rows>
inline void Follow(constant CtcParams &params, Input input, Direction backward,
                   Rows rows, int end, thread BestPath &path) {
  const int none = 0x7fffffff, lane = input.thread_index % kCtcSimdWidth;
  bool has_arc = true;
  while (has_arc && path.time < end) {
    const auto now = rows.At(path.time), next = rows.At(path.time + 1);
    const int last = backward.arc_begins[path.state + 1];
    int found = none;
    for (int i = backward.arc_begins[path.state]; i < last && found == none;
         i += kCtcSimdWidth) {
      int mine = none;
      if (i + lane < last) {
        const Arc arc = input.arcs[i + lane - input.fsa.arc_begin];
        // In the order of MaxOfArcs(), whose maximum this is.
        if (next[arc.dest_state].r + arc.score +
                ScoreAt(params, input.b_scores, input.fsa.first_row + path.time,
                        arc.label) ==
            now[path.state].r)
          mine = i + lane;
      }
      found = simd_min(mine);
    }
    has_arc = found != none;
    if (has_arc) {
      if (input.thread_index == 0) path.arcs[path.time] = found;
      path.state = input.arcs[found - input.fsa.arc_begin].dest_state;
      ++path.time;
    }
  }
}

// Follows the best path through all blocks.
template <typename Memory>
inline void FollowBlocks(constant CtcParams &params, Input input,
                         Direction backward, device const BestScore *best,
                         Memory memory, thread BestPath &path) {
  const Fsa fsa = input.fsa;
  const int num_states = fsa.num_states, size = params.rows_of_best_block;
  KeepRows<decltype(memory.rows)> keep = {memory.rows, 0, 0, num_states};
  while (path.time < fsa.num_rows) {
    const int block = path.time / size,
              end = min((block + 1) * size, fsa.num_rows);
    keep.begin = path.time;
    keep.end = min(end + 1, path.time + memory.num_rows);
    if (end < fsa.num_rows) {
      Resume<BestScore>(
          input,
          best + RowsBegin(params, fsa, size, false) + (block + 1) * num_states,
          end, memory.sums, keep);
    } else {
      Begin<BestScore>(input, num_states - 1, end, memory.sums, keep);
    }
    Pass<BestScore>(params, input, backward, end, end - path.time, memory.sums,
                    memory.sums + num_states, keep);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    Follow(params, input, backward, keep, keep.end - 1, path);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    if (path.time < keep.end - 1) return;
  }
}

// best, best_totals   as ctc_best_scores left them
// scratch    as that of ctc_best_scores
// best_arcs  [params.num_fsas][params.num_rows], the arc of an FSA's best path
//            at each time, where rounding may prune that path; else -1
//
// Each FSA is a threadgroup.  Of equal arcs the path takes the first one, as
// GetBestArcs() of k2/csrc/best_paths.h.
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_best_path(device const Arc *arcs [[buffer(0)]],
                          device const int *state_begins [[buffer(1)]],
                          device const int *leaving_begins [[buffer(2)]],
                          device const float *b_scores [[buffer(3)]],
                          device const int *b_begins [[buffer(4)]],
                          device const uchar *penalized [[buffer(5)]],
                          device const BestScore *best [[buffer(6)]],
                          device const float *best_totals [[buffer(7)]],
                          device BestScore *scratch [[buffer(8)]],
                          device int *best_arcs [[buffer(9)]],
                          constant CtcParams &params [[buffer(10)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint num_threads [[threads_per_threadgroup]]) {
  threadgroup BestScore memory[kCtcBlockFloats];

  const Fsa fsa = GetFsa(int(group), state_begins, leaving_begins, b_begins);
  const Input input = GetInput(params, int(group), fsa, arcs, penalized,
                               b_scores, nullptr, thread_index, num_threads);
  BestPath path = {best_arcs + int(group) * params.num_rows, 0, 0};
  if (MayCutBestPath(best_totals[2 * group], best_totals[2 * group + 1], fsa,
                     params.beam)) {
    const Direction backward = {leaving_begins + fsa.state_begin,
                                leaving_begins, false};
    const int of_sums = 4 * fsa.num_states,
              num_rows = (kCtcBlockFloats - of_sums) / fsa.num_states;
    if (params.rows_of_best_block == 1) {
      const KeepRows<device const BestScore *> all = {
          best + RowsBegin(params, fsa, 1, false), 0, 0, fsa.num_states};
      Follow(params, input, backward, all, fsa.num_rows, path);
    } else if (num_rows > 1) {
      FollowBlocks(
          params, input, backward, best,
          BlockMemory<threadgroup BestScore *, threadgroup BestScore *>{
              memory, memory + of_sums, num_rows},
          path);
    } else {
      device BestScore *of_fsa =
          scratch + fsa.state_begin * (kCtcScratchRows + 4);
      FollowBlocks(params, input, backward, best,
                   BlockMemory<device BestScore *, device BestScore *>{
                       of_fsa, of_fsa + of_sums, kCtcScratchRows},
                   path);
    }
  }
  for (int i = path.time + int(thread_index); i < params.num_rows;
       i += int(num_threads))
    path.arcs[i] = -1;
}

// What decides which arcs of an FSA are kept, beside the scores of states.
struct Pruning {
  float cutoff;
  device const int *path;  // [params.num_rows], see best_arcs
  device uint *kept;
};

// Writes the words of `kept` of a row.
template <typename Forward, typename Backward>
inline void KeepArcs(constant CtcParams &params, Input input, Pruning pruning,
                     int t, Forward to_src, Forward to_dest, Backward from_src,
                     Backward from_dest) {
  const Fsa fsa = input.fsa;
  const float cutoff = pruning.cutoff;
  device const int *path = pruning.path + t;
  const int best_arc = path[0] < 0 ? -1 : path[0] - fsa.arc_begin,
            before = t == 0 || path[-1] < 0 ? -1 : path[-1] - fsa.arc_begin;
  const int best_src = best_arc >= 0 ? input.arcs[best_arc].src_state
                       : before >= 0 ? input.arcs[before].dest_state
                                     : -1,
            best_dest = best_arc >= 0 ? input.arcs[best_arc].dest_state : -1;
  for (int i = input.thread_index;; i += input.num_threads) {
    // All lanes of a simdgroup go through this loop equally often.
    if (i / kCtcSimdWidth * kCtcSimdWidth >= fsa.num_arcs) break;
    bool keep = false;
    if (i < fsa.num_arcs) {
      const Arc arc = input.arcs[i];
      const float score = arc.score + ScoreAt(params, input.b_scores,
                                              fsa.first_row + t, arc.label);
      const int src = arc.src_state, dest = arc.dest_state;
      // The additions are k2's, in its order.
      keep =
          (to_src[src].r + from_src[src].r > cutoff || src == best_src) &&
          (to_dest[dest].r + from_dest[dest].r > cutoff || dest == best_dest) &&
          (to_src[src].r + score + from_dest[dest].r > cutoff || i == best_arc);
    }
    const uint bits = uint(static_cast<simd_vote::vote_t>(simd_ballot(keep)));
    if (i % kCtcSimdWidth == 0)
      pruning
          .kept[t * params.num_words + input.first_word + i / kCtcSimdWidth] =
          bits;
  }
}

// Writes the words of the rows that begin at the times it leaves.
template <typename Rows>
struct KeepArcsOfRows {
  constant CtcParams &params;
  Input input;
  Pruning pruning;
  KeepRows<Rows> forward;

  template <typename Scores>
  void Leave(int time, Scores from_src, Scores from_dest) const {
    // Of the rows there, the last one begins before the last time.
    if (time + 1 == forward.end) return;
    KeepArcs(params, input, pruning, time, forward.At(time),
             forward.At(time + 1), from_src, from_dest);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }

  void Take(int, int, BestScore) const {}

  template <typename Scores>
  void Finish(int time, Scores from_src, Scores from_dest) const {
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    Leave(time, from_src, from_dest);
  }
};

// best, best_totals, best_arcs   as the kernels before left them
// scratch   as that of ctc_best_scores
// kept      [params.num_rows][params.num_words], a bit for each arc
//
// A threadgroup has a block of params.rows_of_best_block rows; the first one of
// an FSA has all of them if threadgroup memory does not hold the scores of its
// states.
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_keep(device const Arc *arcs [[buffer(0)]],
                     device const int *state_begins [[buffer(1)]],
                     device const int *leaving_begins [[buffer(2)]],
                     device const int *entering_begins [[buffer(3)]],
                     device const int *entering [[buffer(4)]],
                     device const float *b_scores [[buffer(5)]],
                     device const int *b_begins [[buffer(6)]],
                     device const uchar *penalized [[buffer(7)]],
                     device const BestScore *best [[buffer(8)]],
                     device const float *best_totals [[buffer(9)]],
                     device const int *best_arcs [[buffer(10)]],
                     device BestScore *scratch [[buffer(11)]],
                     device uint *kept [[buffer(12)]],
                     constant CtcParams &params [[buffer(13)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]],
                     uint num_threads [[threads_per_threadgroup]]) {
  threadgroup BestScore memory[kCtcBlockFloats];

  const int index = int(group) % params.num_fsas,
            block = int(group) / params.num_fsas,
            size = params.rows_of_best_block;
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  if (block * size >= fsa.num_rows || fsa.num_states == 0) return;
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               nullptr, thread_index, num_threads);
  const Direction forward = {entering_begins + fsa.state_begin, entering, true},
                  backward = {leaving_begins + fsa.state_begin, entering,
                              false};
  const float start = best_totals[2 * index], end = best_totals[2 * index + 1];
  const Pruning pruning = {(start < end ? start : end) - params.beam,
                           best_arcs + index * params.num_rows, kept};
  const int num_states = fsa.num_states, of_sums = 4 * num_states,
            num_rows = (kCtcBlockFloats - of_sums) / num_states;
  if (size == 1) {
    device const BestScore *to = best + RowsBegin(params, fsa, 1, true) +
                                 block * num_states,
                           *from = best + RowsBegin(params, fsa, 1, false) +
                                   block * num_states;
    KeepArcs(params, input, pruning, block, to, to + num_states, from,
             from + num_states);
  } else if (num_rows > 1) {
    const BlockMemory<threadgroup BestScore *, threadgroup BestScore *> here = {
        memory, memory + of_sums, num_rows};
    WalkBlocks<BestScore>(params, input, forward, backward, size, best, block,
                          block, 2, here,
                          KeepArcsOfRows<threadgroup BestScore *>{
                              params, input, pruning, {here.rows, 0, 0, 0}});
  } else if (block == 0) {
    device BestScore *of_fsa =
        scratch + fsa.state_begin * (kCtcScratchRows + 4);
    const BlockMemory<device BestScore *, device BestScore *> there = {
        of_fsa, of_fsa + of_sums, kCtcScratchRows};
    WalkBlocks<BestScore>(params, input, forward, backward, size, best, 0,
                          (fsa.num_rows - 1) / size, 2, there,
                          KeepArcsOfRows<device BestScore *>{
                              params, input, pruning, {there.rows, 0, 0, 0}});
  }
}

// Sums as they are; rounded if all rows are kept.
template <typename Sum>
struct SumCheckpoints {
  device FloatLogSum *sums;
  int begin, num_states, rows_of_block;

  template <typename Sums>
  void Leave(int, Sums, Sums) const {}

  void Take(int time, int s, Sum sum) const {
    if (rows_of_block == 1) {
      sums[begin + time * num_states + s] = Rounded(sum);
    } else if ((time & (rows_of_block - 1)) == 0) {
      reinterpret_cast<device Sum *>(
          sums)[begin + time / rows_of_block * num_states + s] = sum;
    }
  }
};

// penalized        [params.num_arcs], whether an arc has a symbol that comes
//                  late
// is_bad           whether a graph has a symbol without scores: no sum exists
// sums             see SumCheckpoints
// scratch          [4 * params.num_states], for FSAs of many states
// totals           [params.num_fsas], the sum of an FSA's paths
// scores           [params.num_fsas], the same as one number
//
// There are two threadgroups for each FSA.
template <typename Sum>
[[max_total_threads_per_threadgroup(kCtcMaxThreads)]]
kernel void ctc_sums(device const Arc *arcs [[buffer(0)]],
                     device const int *state_begins [[buffer(1)]],
                     device const int *leaving_begins [[buffer(2)]],
                     device const int *entering_begins [[buffer(3)]],
                     device const int *entering [[buffer(4)]],
                     device const float *b_scores [[buffer(5)]],
                     device const int *b_begins [[buffer(6)]],
                     device const uint *kept [[buffer(7)]],
                     device const uchar *penalized [[buffer(8)]],
                     device const uchar *is_bad [[buffer(9)]],
                     device FloatLogSum *sums [[buffer(10)]],
                     device Sum *scratch [[buffer(11)]],
                     device FloatLogSum *totals [[buffer(12)]],
                     device float *scores [[buffer(13)]],
                     constant CtcParams &params [[buffer(14)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]],
                     uint num_threads [[threads_per_threadgroup]]) {
  threadgroup Sum cache[2 * kCtcMaxCachedStates];

  const int index = int(group) / 2;
  const bool forward = group % 2 != 0;
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  if (fsa.num_states == 0) {
    if (thread_index == 0 && !forward) {
      totals[index] = FloatLogSum{-INFINITY, 1.0f};
      scores[index] = -INFINITY;
    }
    return;
  }
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               kept, thread_index, num_threads);
  const Direction direction = {
      (forward ? entering_begins : leaving_begins) + fsa.state_begin, entering,
      forward};
  const SumCheckpoints<Sum> checkpoints = {
      sums, RowsBegin(params, fsa, params.rows_of_block, forward),
      fsa.num_states, params.rows_of_block};
  const int initial = forward ? 0 : fsa.num_states - 1,
            begin = forward ? 0 : fsa.num_rows;
  const bool cached = fsa.num_states <= kCtcMaxCachedStates;
  device Sum *of_fsa =
      scratch + 4 * fsa.state_begin + (forward ? 2 * fsa.num_states : 0);
  if (cached) {
    threadgroup Sum *first = cache, *second = cache + kCtcMaxCachedStates;
    Begin<Sum>(input, initial, begin, first, checkpoints);
    Pass<Sum>(params, input, direction, begin, fsa.num_rows, first, second,
              checkpoints);
  } else {
    Begin<Sum>(input, initial, begin, of_fsa, checkpoints);
    Pass<Sum>(params, input, direction, begin, fsa.num_rows, of_fsa,
              of_fsa + fsa.num_states, checkpoints);
  }
  if (forward) return;
  // Written by this thread: state 0 is the first one of lane 0.
  if (thread_index == 0) {
    const int row = fsa.num_rows % 2;
    const Sum total = cached ? cache[row * kCtcMaxCachedStates]
                             : of_fsa[row * fsa.num_states];
    totals[index] = Rounded(total);
    scores[index] = is_bad[0] ? NAN : ScoreOf(total);
  }
}

template [[host_name(
    "ctc_sums_double")]] [[kernel]] decltype(ctc_sums<LogSum>) ctc_sums<LogSum>;
template [[host_name("ctc_sums_float")]] [[kernel]]
decltype(ctc_sums<FloatLogSum>) ctc_sums<FloatLogSum>;

// The posterior of an arc of an FSA at time t, whose states have the sums
// `from` from the start and, one time later, `to` to the end; 0 where the arc
// is not kept.
template <typename From, typename To>
inline float Posterior(constant CtcParams &params, Input input, int t,
                       int arc_of_fsa, Arc arc, From from_start, To to_end,
                       FloatLogSum total) {
  const uint word =
      input.kept[t * params.num_words + input.first_word + arc_of_fsa / 32];
  if ((word >> (arc_of_fsa % 32) & 1) == 0 || !(fabs(total.r) < INFINITY))
    return 0.0f;
  float score = arc.score + ScoreAt(params, input.b_scores,
                                    input.fsa.first_row + t, arc.label);
  if (params.has_penalties && input.penalized[arc_of_fsa])
    score += PenaltyAt(params, input.fsa, t);
  const FloatLogSum from = from_start[arc.src_state],
                    to = Rounded(to_end[arc.dest_state]);
  if (from.r == -INFINITY || to.r == -INFINITY) return 0.0f;
  const TwoFloat exponent = Add(Add(TwoSum(from.r, score), to.r), -total.r);
  return precise::exp(exponent.high) * precise::exp(exponent.low) *
         (from.m * (to.m / total.m));
}

// What the gradient of a row is made of, beside the sums of states.
struct RowGradient {
  device const int *by_label;  // of all FSAs
  threadgroup float *values;   // [kCtcThreads]
  threadgroup int *labels;     // [kCtcThreads]
  FloatLogSum total;
  float score_grad;
  device float *b_grad;
};

// Writes a row of b_grad.
template <typename From, typename To>
inline void WriteRow(constant CtcParams &params, Input input,
                     RowGradient gradient, int t, From from_start, To to_end) {
  const int thread_id = input.thread_index, threads = input.num_threads,
            num_arcs = input.fsa.num_arcs;
  threadgroup float *values = gradient.values;
  threadgroup int *labels = gradient.labels;
  device float *row =
      gradient.b_grad + (input.fsa.first_row + t) * params.num_columns;
  for (int i = thread_id; i < params.num_columns; i += threads) row[i] = 0.0f;

  for (int begin = 0; begin < num_arcs; begin += threads) {
    const int position = input.fsa.arc_begin + begin + thread_id,
              count = min(threads, num_arcs - begin);
    if (thread_id < count) {
      const int i = gradient.by_label[position] - input.fsa.arc_begin;
      const Arc arc = input.arcs[i];
      labels[thread_id] = arc.label;
      values[thread_id] =
          gradient.score_grad * Posterior(params, input, t, i, arc, from_start,
                                          to_end, gradient.total);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    // The first thread of a label has all arcs of it that are here.
    if (thread_id < count) {
      const int label = labels[thread_id];
      if ((thread_id == 0 || labels[thread_id - 1] != label) && label >= -1 &&
          label + 1 < params.num_columns) {
        float sum = 0.0f;
        for (int i = thread_id; i < count && labels[i] == label; ++i)
          sum += values[i];
        row[label + 1] += sum;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }
}

// by_label   [params.num_arcs], the arcs of each FSA by their labels, arcs of
//            one label in the order of the graph
// sums, totals   as ctc_sums wrote them, which left all rows
// score_grads    [params.num_fsas], the gradient of its `scores`
// b_grad     [rows][params.num_columns], the gradient of b_scores
//
// A threadgroup has one row.
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_gradient(device const Arc *arcs [[buffer(0)]],
                         device const int *state_begins [[buffer(1)]],
                         device const int *leaving_begins [[buffer(2)]],
                         device const int *by_label [[buffer(3)]],
                         device const float *b_scores [[buffer(4)]],
                         device const int *b_begins [[buffer(5)]],
                         device const uint *kept [[buffer(6)]],
                         device const uchar *penalized [[buffer(7)]],
                         device const FloatLogSum *sums [[buffer(8)]],
                         device const FloatLogSum *totals [[buffer(9)]],
                         device const float *score_grads [[buffer(10)]],
                         device float *b_grad [[buffer(11)]],
                         constant CtcParams &params [[buffer(12)]],
                         uint group [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]],
                         uint num_threads [[threads_per_threadgroup]]) {
  threadgroup float values[kCtcThreads];
  threadgroup int labels[kCtcThreads];

  const int index = int(group) % params.num_fsas,
            t = int(group) / params.num_fsas;
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  if (t >= fsa.num_rows) return;
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               kept, thread_index, num_threads);
  const RowGradient gradient = {
      by_label, values, labels, totals[index], score_grads[index], b_grad};
  WriteRow(params, input, gradient, t,
           sums + RowsBegin(params, fsa, 1, true) + t * fsa.num_states,
           sums + RowsBegin(params, fsa, 1, false) + (t + 1) * fsa.num_states);
}

// Writes the rows of b_grad that end at the times it leaves.
template <typename Rows>
struct WriteRows {
  constant CtcParams &params;
  Input input;
  RowGradient gradient;
  KeepRows<Rows> forward;

  template <typename Sums>
  void Leave(int time, Sums to_end, Sums) const {
    WriteRow(params, input, gradient, time - 1, forward.At(time - 1), to_end);
  }

  template <typename Sum>
  void Take(int, int, Sum) const {}

  template <typename Sums>
  void Finish(int, Sums, Sums) const {}
};

// As ctc_gradient where ctc_sums left checkpoints.
//
// entering_begins, entering   as those of ctc_sums
// scratch    [params.num_states * (kCtcScratchRows + 4 * Sums)], for FSAs of
//            many states
//
// A threadgroup has a block of params.rows_of_block rows; the first one of an
// FSA has all of them if threadgroup memory does not hold the sums of its
// states.
template <typename Sum>
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_block_gradient(device const Arc *arcs [[buffer(0)]],
                               device const int *state_begins [[buffer(1)]],
                               device const int *leaving_begins [[buffer(2)]],
                               device const int *by_label [[buffer(3)]],
                               device const float *b_scores [[buffer(4)]],
                               device const int *b_begins [[buffer(5)]],
                               device const uint *kept [[buffer(6)]],
                               device const uchar *penalized [[buffer(7)]],
                               device const Sum *sums [[buffer(8)]],
                               device const FloatLogSum *totals [[buffer(9)]],
                               device const float *score_grads [[buffer(10)]],
                               device float *b_grad [[buffer(11)]],
                               device const int *entering_begins [[buffer(12)]],
                               device const int *entering [[buffer(13)]],
                               device FloatLogSum *scratch [[buffer(14)]],
                               constant CtcParams &params [[buffer(15)]],
                               uint group [[threadgroup_position_in_grid]],
                               uint thread_index
                               [[thread_index_in_threadgroup]],
                               uint num_threads [[threads_per_threadgroup]]) {
  threadgroup FloatLogSum memory[kCtcBlockFloats / 2];
  threadgroup float values[kCtcThreads];
  threadgroup int labels[kCtcThreads];

  const int index = int(group) % params.num_fsas,
            block = int(group) / params.num_fsas;
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  if (block * params.rows_of_block >= fsa.num_rows) return;
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               kept, thread_index, num_threads);
  const Direction forward = {entering_begins + fsa.state_begin, entering, true},
                  backward = {leaving_begins + fsa.state_begin, entering,
                              false};
  const RowGradient gradient = {
      by_label, values, labels, totals[index], score_grads[index], b_grad};
  // In FloatLogSums.
  const int of_sums = 4 * fsa.num_states * int(sizeof(Sum) / sizeof(*memory)),
            num_rows = (kCtcBlockFloats / 2 - of_sums) / max(fsa.num_states, 1);
  if (num_rows > 0) {
    const BlockMemory<threadgroup Sum *, threadgroup FloatLogSum *> here = {
        reinterpret_cast<threadgroup Sum *>(memory), memory + of_sums,
        num_rows};
    WalkBlocks<Sum>(params, input, forward, backward, params.rows_of_block,
                    sums, block, block, 1, here,
                    WriteRows<threadgroup FloatLogSum *>{
                        params, input, gradient, {here.rows, 0, 0, 0}});
  } else if (block == 0) {
    device FloatLogSum *of_fsa =
        scratch + fsa.state_begin *
                      int(kCtcScratchRows + 4 * sizeof(Sum) / sizeof(*memory));
    const BlockMemory<device Sum *, device FloatLogSum *> there = {
        reinterpret_cast<device Sum *>(of_fsa), of_fsa + of_sums,
        kCtcScratchRows};
    WalkBlocks<Sum>(params, input, forward, backward, params.rows_of_block,
                    sums, 0, (fsa.num_rows - 1) / params.rows_of_block, 1,
                    there,
                    WriteRows<device FloatLogSum *>{
                        params, input, gradient, {there.rows, 0, 0, 0}});
  }
}

template [[host_name("ctc_block_gradient_double")]] [[kernel]]
decltype(ctc_block_gradient<LogSum>) ctc_block_gradient<LogSum>;
template [[host_name("ctc_block_gradient_float")]] [[kernel]]
decltype(ctc_block_gradient<FloatLogSum>) ctc_block_gradient<FloatLogSum>;

// fsas    [params.num_arcs], the FSA of each arc
// sums    as ctc_sums wrote them, which left all rows
// a_grad  [params.num_arcs], the gradient of the scores of the graphs' arcs
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_arc_gradient(device const Arc *arcs [[buffer(0)]],
                             device const int *state_begins [[buffer(1)]],
                             device const int *leaving_begins [[buffer(2)]],
                             device const int *fsas [[buffer(3)]],
                             device const float *b_scores [[buffer(4)]],
                             device const int *b_begins [[buffer(5)]],
                             device const uint *kept [[buffer(6)]],
                             device const uchar *penalized [[buffer(7)]],
                             device const FloatLogSum *sums [[buffer(8)]],
                             device const FloatLogSum *totals [[buffer(9)]],
                             device const float *score_grads [[buffer(10)]],
                             device float *a_grad [[buffer(11)]],
                             constant CtcParams &params [[buffer(12)]],
                             uint position [[thread_position_in_grid]]) {
  if (int(position) >= params.num_arcs) return;
  const int index = fsas[position];
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               kept, position, 0);
  const int arc_of_fsa = int(position) - fsa.arc_begin;
  const Arc arc = input.arcs[arc_of_fsa];
  const FloatLogSum total = totals[index];
  const float score_grad = score_grads[index];
  device const FloatLogSum *from_start = sums + RowsBegin(params, fsa, 1, true),
                           *to_end = sums + RowsBegin(params, fsa, 1, false);
  float sum = 0.0f;
  for (int t = 0; t < fsa.num_rows; ++t) {
    to_end += fsa.num_states;
    // Rounded before it is added, as by the CPU: an fma() is not fused with a
    // sum.
    sum += fma(
        score_grad,
        Posterior(params, input, t, arc_of_fsa, arc, from_start, to_end, total),
        0.0f);
    from_start += fsa.num_states;
  }
  a_grad[position] = sum;
}
