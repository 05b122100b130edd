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

#ifndef K2_CSRC_MPS_KERNELS_CTC_SUMS_H_
#define K2_CSRC_MPS_KERNELS_CTC_SUMS_H_

#include "k2/csrc/mps/kernels/two_float.h"

// For kernels only: what a state of CTC has at a time, of one of three types.
// A BestScore is the score of the best path.  A FloatLogSum or a LogSum (see
// two_float.h) is the score of all paths.
//
// The functions here let one template go through the frames for each type.

// The score of the best path to a state.
struct BestScore {
  float r;
};

// The score r + log(m) of all paths to a state, in single precision.
struct FloatLogSum {
  float r, m;
};

// A state's sum is made in two passes over its arcs: MaxOfArcs() finds r, and
// SumOfArcs() adds up m.
inline float MaxOfArcs(float r, FloatLogSum state, float arc_score) {
  const float score = state.r + arc_score;
  return score > r ? score : r;
}

inline float SumOfArcs(float m, float r, FloatLogSum state, float arc_score) {
  // TwoSum() keeps what rounding takes from state.r + arc_score.
  const TwoFloat score = TwoSum(state.r, arc_score);
  const float diff = (score.high - r) + score.low;
  return diff > -kMaxDiff ? metal::fma(state.m, metal::precise::exp(diff), m)
                          : m;
}

// Moves a large m to r, lest m overflow.
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

// MaxOfLanes() and SumOfLanes() combine the values of the lanes that share a
// state.
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

#endif  // K2_CSRC_MPS_KERNELS_CTC_SUMS_H_
