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
// the score of its graph's arc plus that of its symbol in row t.  The kernel
// intersect_dense has computed the score of the best path from the start to
// each state, and from there to the end.  Then
//
//   ctc_best_path     finds the best path of an FSA where rounding may prune it,
//   ctc_keep          tells which arcs k2 keeps in its pruned lattice,
//   ctc_sums          sums over the paths of kept arcs, from the start to each
//                     state (forward) and from there to the end (backward),
//   ctc_gradient      sums posteriors of arcs for each element of b_scores,
//   ctc_arc_gradient  the same for each arc of the graphs.
//
// The sums of all states at all times would be most of the memory of a step.  So
// ctc_sums leaves only those of every 16th time or so, the checkpoints, and
// ctc_block_gradient takes the place of ctc_gradient: a threadgroup computes the
// sums between two checkpoints again, by the same operations, and writes the
// gradient of these rows.
//
// The recursions are those of A. Graves et al., Connectionist Temporal
// Classification, 2006, section 4.1, on any graph in place of a chain.
//
// Each result is written by one thread, which adds in one order, so that all
// runs give the same bits.

using namespace metal;

constant float kEpsilon = 1.1920929e-7f;  // a unit in the last place of 1

static_assert(2 * kCtcMaxCachedStates * sizeof(LogSum) <= 32768,
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
  return Fsa{begin,
             end - begin,
             arc_begin,
             leaving_begins[end] - arc_begin,
             b_begins[fsa],
             b_begins[fsa + 1] - b_begins[fsa]};
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

// The scores of best paths that intersect_dense computed, of one FSA.
struct BestScores {
  device const float *backward;  // of its states, no frame before the end
  device const float *forward;   // likewise, after no frame
  int of_time;                   // from one number of frames to the next
  float start, end;              // the total score, by either pass
};

inline BestScores GetBestScores(constant CtcParams &params, Fsa info,
                                device const float *best) {
  const int of_time = 2 * params.num_states, last = info.num_rows * of_time;
  device const float *backward = best + 2 * info.state_begin,
                     *forward = backward + info.num_states;
  return BestScores{backward, forward, of_time, backward[last],
                    forward[last + info.num_states - 1]};
}

// As MayCutBestPath() of k2/csrc/best_paths.h.
inline bool MayCutBestPath(BestScores scores, Fsa info, float beam) {
  const float apart = fabs(scores.end - scores.start),
              size = fmax(fabs(scores.start), fabs(scores.end));
  return scores.start > -INFINITY && scores.end > -INFINITY &&
         !(beam > apart + (float(info.num_rows) + 1.0f) * kEpsilon * size);
}

// arcs            [params.num_arcs]
// state_begins    [params.num_fsas + 1], the row splits of axis 1 of the graphs
// leaving_begins  [params.num_states + 1], those of axis 2
// b_scores        [rows][params.stride]
// b_begins        [params.num_fsas + 1], rows of b_scores where sequences begin
// best            [params.num_rows + 1][2 * params.num_states], what
//                 intersect_dense calls state_scores
// best_arcs       [params.num_fsas][params.num_rows], the arc of an FSA's best
//                 path at each time, where rounding may prune that path; else -1
//
// A threadgroup is one simdgroup and follows the best path of one FSA.  Of
// equal arcs it takes the first one, as GetBestArcs() of k2/csrc/best_paths.h.
[[max_total_threads_per_threadgroup(kCtcSimdWidth)]]
kernel void ctc_best_path(device const Arc *arcs [[buffer(0)]],
                          device const int *state_begins [[buffer(1)]],
                          device const int *leaving_begins [[buffer(2)]],
                          device const float *b_scores [[buffer(3)]],
                          device const int *b_begins [[buffer(4)]],
                          device const float *best [[buffer(5)]],
                          device int *best_arcs [[buffer(6)]],
                          constant CtcParams &params [[buffer(7)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
  const int none = 0x7fffffff, lane = int(thread_index);
  const Fsa info =
      GetFsa(int(group), state_begins, leaving_begins, b_begins);
  device int *path = best_arcs + int(group) * params.num_rows;
  int t = 0;
  if (info.num_states != 0) {
    const BestScores scores = GetBestScores(params, info, best);
    bool has_arc = MayCutBestPath(scores, info, params.beam);
    int state = 0;
    while (has_arc && t < info.num_rows) {
      device const float *now =
          scores.backward + (info.num_rows - t) * scores.of_time;
      device const float *next = now - scores.of_time;
      const int begin = leaving_begins[info.state_begin + state],
                end = leaving_begins[info.state_begin + state + 1];
      int found = none;
      for (int i = begin; i < end && found == none; i += kCtcSimdWidth) {
        int mine = none;
        if (i + lane < end) {
          const Arc arc = arcs[i + lane];
          // In the order of intersect_dense, whose maximum this is.
          if (next[arc.dest_state] + arc.score +
                  ScoreAt(params, b_scores, info.first_row + t, arc.label) ==
              now[state])
            mine = i + lane;
        }
        found = simd_min(mine);
      }
      has_arc = found != none;
      if (has_arc) {
        if (lane == 0) path[t] = found;
        state = arcs[found].dest_state;
        ++t;
      }
    }
  }
  for (int i = t + lane; i < params.num_rows; i += kCtcSimdWidth) path[i] = -1;
}

// kept   [params.num_rows][params.num_words], a bit for each arc
//
// A threadgroup has the arcs that leave the states of one FSA at one time.
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_keep(device const Arc *arcs [[buffer(0)]],
                     device const int *state_begins [[buffer(1)]],
                     device const int *leaving_begins [[buffer(2)]],
                     device const float *b_scores [[buffer(3)]],
                     device const int *b_begins [[buffer(4)]],
                     device const float *best [[buffer(5)]],
                     device const int *best_arcs [[buffer(6)]],
                     device uint *kept [[buffer(7)]],
                     constant CtcParams &params [[buffer(8)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]],
                     uint num_threads [[threads_per_threadgroup]]) {
  const int fsa = int(group) % params.num_fsas,
            t = int(group) / params.num_fsas;
  const Fsa info = GetFsa(fsa, state_begins, leaving_begins, b_begins);
  if (t >= info.num_rows || info.num_states == 0) return;

  const BestScores scores = GetBestScores(params, info, best);
  const int rest = info.num_rows - t;
  device const float *to_src = scores.forward + t * scores.of_time,
                     *from_src = scores.backward + rest * scores.of_time,
                     *to_dest = to_src + scores.of_time,
                     *from_dest = from_src - scores.of_time;
  const float cutoff =
      (scores.start < scores.end ? scores.start : scores.end) - params.beam;

  device const int *path = best_arcs + fsa * params.num_rows + t;
  const int best_arc = path[0], before = t == 0 ? -1 : path[-1];
  const int best_src = best_arc >= 0 ? arcs[best_arc].src_state
                       : before >= 0 ? arcs[before].dest_state
                                     : -1,
            best_dest = best_arc >= 0 ? arcs[best_arc].dest_state : -1;

  const int row = info.first_row + t;
  for (int i = int(thread_index);; i += int(num_threads)) {
    // All lanes of a simdgroup go through this loop equally often.
    if (i / kCtcSimdWidth * kCtcSimdWidth >= info.num_arcs) break;
    bool keep = false;
    if (i < info.num_arcs) {
      const Arc arc = arcs[info.arc_begin + i];
      const float score =
          arc.score + ScoreAt(params, b_scores, row, arc.label);
      const int src = arc.src_state, dest = arc.dest_state;
      // The additions are k2's, in its order.
      keep = (to_src[src] + from_src[src] > cutoff || src == best_src) &&
             (to_dest[dest] + from_dest[dest] > cutoff || dest == best_dest) &&
             (to_src[src] + score + from_dest[dest] > cutoff ||
              info.arc_begin + i == best_arc);
    }
    const uint bits = uint(static_cast<simd_vote::vote_t>(simd_ballot(keep)));
    if (i % kCtcSimdWidth == 0)
      kept[t * params.num_words + WordOf(fsa, info, i)] = bits;
  }
}

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

inline FloatLogSum Rounded(FloatLogSum sum) { return sum; }
inline FloatLogSum Rounded(LogSum sum) {
  return FloatLogSum{sum.r.high, sum.m.high * precise::exp(sum.r.low)};
}

inline float ScoreOf(FloatLogSum sum) {
  return fabs(sum.r) < INFINITY ? sum.r + precise::log(sum.m) : sum.r;
}
inline float ScoreOf(LogSum sum) { return Score(sum).high; }

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
  const int i =
      (direction.forward ? direction.entering[position] : position) -
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
  device const uint *kept;  // of this time
  int row;
  float penalty;
};

inline Frame GetFrame(constant CtcParams &params, Input input, int t) {
  return Frame{input.kept + t * params.num_words, input.fsa.first_row + t,
               PenaltyAt(params, input.fsa, t)};
}

// The score of an arc in a frame; -inf if it is not kept.
inline float ScoreIn(constant CtcParams &params, Input input, Frame frame,
                     Step step) {
  if ((frame.kept[step.word] & step.bit) == 0) return -INFINITY;
  const float score =
      step.score + ScoreAt(params, input.b_scores, frame.row, step.label);
  return step.penalized ? score + frame.penalty : score;
}

// Sums over the arcs of one state: of the first ones of a lane by `steps` and
// `scores`, of arcs number begin, begin + width, ... below end from memory.
template <typename Sum, typename Sums>
inline Sum SumOfState(constant CtcParams &params, Input input,
                      Direction direction, Frame frame,
                      thread const Step *steps, thread const float *scores,
                      int num_steps, int begin, int end, Sums previous) {
  Sum none = ToSum(-INFINITY, Sum());
  auto r = None(none.r);
  for (int i = 0; i < num_steps; ++i)
    r = MaxOfArcs(r, previous[steps[i].other], scores[i]);
  for (int i = begin; i < end; i += params.width) {
    const Step step = GetStep(params, input, direction, i);
    r = MaxOfArcs(r, previous[step.other], ScoreIn(params, input, frame, step));
  }
  r = MaxOfLanes(r, params.width);
  auto m = Zero(none.m);
  for (int i = 0; i < num_steps; ++i)
    m = SumOfArcs(m, r, previous[steps[i].other], scores[i]);
  for (int i = begin; i < end; i += params.width) {
    const Step step = GetStep(params, input, direction, i);
    m = SumOfArcs(m, r, previous[step.other],
                  ScoreIn(params, input, frame, step));
  }
  return MakeLogSum(r, SumOfLanes(m, params.width));
}

// Steps of one FSA in one direction.
//
// time             of the sums in `previous`; of each row from there on
// previous, next   sums of the states at the last time and at this one, which
//                  change places after each step
// visitor          Leave(time, previous) is called by all threads before each
//                  step, Take(time, state, sum) for each sum that it makes
template <typename Sum, typename Sums, typename Visitor>
inline void Pass(constant CtcParams &params, Input input, Direction direction,
                 int time, int num_steps, Sums previous, Sums next,
                 Visitor visitor) {
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
    const Step none = {0, -1, input.first_word, 0, 0.0f, false};
    steps[i] = position < arc_end
                   ? GetStep(params, input, direction, position)
                   : none;
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
      next_scores[i] = ScoreIn(params, input, next_frame, steps[i]);

    if (n > 0) {
      threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
      visitor.Leave(time, previous);
      time += change;
      // All lanes of a simdgroup go through this loop equally often.
      for (int s = first_state; s - first_state < num_states;
           s += states_at_once) {
        const bool is_first = s == first_state, is_state = s < num_states;
        const Sum sum = SumOfState<Sum>(
            params, input, direction, frame, steps, scores,
            is_first ? int(kCtcArcsOfLane) : 0,
            is_first   ? more_arcs
            : is_state ? direction.arc_begins[s] + lane
                       : 0,
            is_first   ? arc_end
            : is_state ? direction.arc_begins[s + 1]
                       : 0,
            previous);
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

// What ctc_sums leaves of an FSA's rows, which are the sums of its states at
// times 0, 1, ..., R: those whose time is a multiple of params.rows_of_block,
// first the sums to the end, then those from the start.  These checkpoints are
// Sums as they are; if all rows are left, they are rounded.

// Where rows begin.
inline int RowsBegin(constant CtcParams &params, Fsa fsa, bool forward) {
  return (2 * fsa.state_begin + (forward ? fsa.num_states : 0)) *
         (params.num_rows / params.rows_of_block + 1);
}

template <typename Sum>
struct Checkpoints {
  device FloatLogSum *sums;
  int begin, num_states, rows_of_block;

  template <typename Sums>
  void Leave(int, Sums) const {}

  void Take(int time, int s, Sum sum) const {
    if (rows_of_block == 1) {
      sums[begin + time * num_states + s] = Rounded(sum);
    } else if ((time & (rows_of_block - 1)) == 0) {
      reinterpret_cast<device Sum *>(
          sums)[begin + time / rows_of_block * num_states + s] = sum;
    }
  }
};

// entering_begins  [params.num_states + 1], into `entering`
// entering         [params.num_arcs], arcs by the states that they enter
// penalized        [params.num_arcs], whether an arc has a symbol that comes
//                  late
// is_bad           whether a graph has a symbol without scores: no sum exists
// sums             see Checkpoints
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
  const Checkpoints<Sum> checkpoints = {sums, RowsBegin(params, fsa, forward),
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

template [[host_name("ctc_sums_double")]] [[kernel]] decltype(ctc_sums<LogSum>)
    ctc_sums<LogSum>;
template [[host_name("ctc_sums_float")]] [[kernel]]
decltype(ctc_sums<FloatLogSum>) ctc_sums<FloatLogSum>;

// The posterior of an arc of an FSA at time t, whose states have the sums
// `from` from the start and, one time later, `to` to the end; 0 where the arc is
// not kept.
template <typename From, typename To>
inline float Posterior(constant CtcParams &params, Input input, int t,
                       int arc_of_fsa, Arc arc, From from_start, To to_end,
                       FloatLogSum total) {
  const uint word = input.kept[t * params.num_words + input.first_word +
                               arc_of_fsa / 32];
  if ((word >> (arc_of_fsa % 32) & 1) == 0 || !(fabs(total.r) < INFINITY))
    return 0.0f;
  float score = arc.score + ScoreAt(params, input.b_scores,
                                    input.fsa.first_row + t, arc.label);
  if (params.has_penalties && input.penalized[arc_of_fsa])
    score += PenaltyAt(params, input.fsa, t);
  const FloatLogSum from = from_start[arc.src_state],
                    to = Rounded(to_end[arc.dest_state]);
  if (from.r == -INFINITY || to.r == -INFINITY) return 0.0f;
  const TwoFloat exponent =
      Add(Add(TwoSum(from.r, score), to.r), -total.r);
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
  const RowGradient gradient = {by_label,      values,
                                labels,        totals[index],
                                score_grads[index], b_grad};
  WriteRow(params, input, gradient, t,
           sums + RowsBegin(params, fsa, true) + t * fsa.num_states,
           sums + RowsBegin(params, fsa, false) + (t + 1) * fsa.num_states);
}

// Visitors of Pass().  One keeps the sums of times from `begin` on.
template <typename Rows>
struct KeepRows {
  Rows rows;
  int begin, num_states;

  template <typename Sums>
  void Leave(int, Sums) const {}

  template <typename Sum>
  void Take(int time, int s, Sum sum) const {
    if (time >= begin) rows[(time - begin) * num_states + s] = Rounded(sum);
  }
};

// The other writes the rows of b_grad that end at the times it leaves.
template <typename Rows>
struct WriteRows {
  constant CtcParams &params;
  Input input;
  RowGradient gradient;
  KeepRows<Rows> from_start;

  template <typename Sums>
  void Leave(int time, Sums to_end) const {
    const int t = time - 1;
    WriteRow(params, input, gradient, t,
             from_start.rows + (t - from_start.begin) * from_start.num_states,
             to_end);
  }

  template <typename Sum>
  void Take(int, int, Sum) const {}
};

// Where a threadgroup has the sums of an FSA that it computes again.
template <typename Sums, typename Rows>
struct BlockMemory {
  Sums sums;     // [4][states], two for each direction
  Rows rows;     // [num_rows][states]
  int num_rows;  // at least 1
};

// Writes the rows of b_grad of blocks last, last - 1, ..., first of one FSA.
//
// The sums to the end are those of the block's last time, and go back from
// there; each is needed once.  Those from the start are kept, of as many times
// as there is memory for; those of earlier times are computed once more later.
template <typename Sum, typename Memory>
inline void WriteBlocks(constant CtcParams &params, Input input,
                        Direction forward, Direction backward,
                        RowGradient gradient, device const Sum *checkpoints,
                        int first, int last, Memory memory) {
  const Fsa fsa = input.fsa;
  const int num_states = fsa.num_states, size = params.rows_of_block;
  auto from_start = memory.sums, to_end = from_start + 2 * num_states,
       next = to_end + num_states;
  KeepRows<decltype(memory.rows)> keep = {memory.rows, 0, num_states};
  const KeepRows<decltype(memory.rows)> nothing = {memory.rows, INT_MAX, 0};
  int end = min((last + 1) * size, fsa.num_rows);
  if (end < fsa.num_rows) {
    Resume<Sum>(input,
                checkpoints + RowsBegin(params, fsa, false) +
                    (last + 1) * num_states,
                end, to_end, nothing);
  } else {
    Begin<Sum>(input, num_states - 1, end, to_end, nothing);
  }
  for (int block = last; block >= first; --block) {
    const int begin = block * size;
    while (end > begin) {
      keep.begin = max(begin, end - memory.num_rows);
      Resume<Sum>(input,
                  checkpoints + RowsBegin(params, fsa, true) +
                      block * num_states,
                  begin, from_start, keep);
      Pass<Sum>(params, input, forward, begin, end - 1 - begin, from_start,
                from_start + num_states, keep);
      Pass<Sum>(params, input, backward, end, end - keep.begin, to_end, next,
                WriteRows<decltype(memory.rows)>{params, input, gradient,
                                                 keep});
      if ((end - keep.begin) % 2 != 0) {
        const auto last_sums = to_end;
        to_end = next;
        next = last_sums;
      }
      end = keep.begin;
    }
  }
}

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
kernel void ctc_block_gradient(
    device const Arc *arcs [[buffer(0)]],
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
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  threadgroup FloatLogSum memory[kCtcBlockSums];
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
  const RowGradient gradient = {by_label,           values,
                                labels,             totals[index],
                                score_grads[index], b_grad};
  // In FloatLogSums.
  const int of_sums = 4 * fsa.num_states * int(sizeof(Sum) / sizeof(*memory)),
            num_rows = (kCtcBlockSums - of_sums) / max(fsa.num_states, 1);
  if (num_rows > 0) {
    WriteBlocks<Sum>(
        params, input, forward, backward, gradient, sums, block, block,
        BlockMemory<threadgroup Sum *, threadgroup FloatLogSum *>{
            reinterpret_cast<threadgroup Sum *>(memory), memory + of_sums,
            num_rows});
  } else if (block == 0) {
    device FloatLogSum *of_fsa =
        scratch + fsa.state_begin * int(kCtcScratchRows +
                                        4 * sizeof(Sum) / sizeof(*memory));
    WriteBlocks<Sum>(params, input, forward, backward, gradient, sums, 0,
                     (fsa.num_rows - 1) / params.rows_of_block,
                     BlockMemory<device Sum *, device FloatLogSum *>{
                         reinterpret_cast<device Sum *>(of_fsa),
                         of_fsa + of_sums, kCtcScratchRows});
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
  device const FloatLogSum *from_start = sums + RowsBegin(params, fsa, true),
                           *to_end = sums + RowsBegin(params, fsa, false);
  float sum = 0.0f;
  for (int t = 0; t < fsa.num_rows; ++t) {
    to_end += fsa.num_states;
    // Rounded before it is added, as by the CPU: an fma() is not fused with a
    // sum.
    sum += fma(score_grad,
               Posterior(params, input, t, arc_of_fsa, arc, from_start, to_end,
                         total),
               0.0f);
    from_start += fsa.num_states;
  }
  a_grad[position] = sum;
}
