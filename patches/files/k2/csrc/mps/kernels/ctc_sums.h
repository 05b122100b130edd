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

// For kernels only: what CTC has for a state in a frame.
//
// The sums need no exponential function of the GPU, only the sums and products
// of IEEE: all GPUs give the same bits.

// The score of the best path.
struct BestScore {
  float max;
};

// The score max + log(sum) of all paths, where T is float or TwoFloat.  `max`
// is about the score of the best path.
template <typename T>
struct PathSum {
  float max;
  T sum;
};

// Whether a type is for all paths.
template <typename Sum>
constexpr bool HasAllPaths() {
  return true;
}
template <>
constexpr bool HasAllPaths<BestScore>() {
  return false;
}

// The score of one path.
template <typename Sum>
inline Sum OnePath(float score);
template <>
inline BestScore OnePath<BestScore>(float score) {
  return BestScore{score};
}
template <>
inline PathSum<float> OnePath<PathSum<float>>(float score) {
  return PathSum<float>{score, 1.0f};
}
template <>
inline PathSum<TwoFloat> OnePath<PathSum<TwoFloat>>(float score) {
  return PathSum<TwoFloat>{score, {1.0f, 0.0f}};
}

inline float Rounded(float sum) { return sum; }
inline float Rounded(TwoFloat sum) { return sum.high; }
inline BestScore Rounded(BestScore score) { return score; }
template <typename T>
inline PathSum<float> Rounded(PathSum<T> sum) {
  return PathSum<float>{sum.max, Rounded(sum.sum)};
}

inline float Scaled(float a, int exponent) {
  return Ldexp(TwoFloat{a, 0.0f}, exponent).high;
}
inline TwoFloat Scaled(TwoFloat a, int exponent) { return Ldexp(a, exponent); }

// sum + a * exp(x)
inline float AddTimesExp(float sum, float a, TwoFloat x) {
  return metal::fma(a, RoundedExp(x), sum);
}
inline TwoFloat AddTimesExp(TwoFloat sum, TwoFloat a, TwoFloat x) {
  return AddSameSign(sum, Mul(a, Exp(x)));
}

// Returns a + b, without an error where the sum is below 2^30: the error of a
// larger sum may be too large for an exponent.
inline TwoFloat AddScores(float a, float b) {
  const TwoFloat sum = TwoSum(a, b);
  const bool is_exact = metal::fabs(sum.high) < 1073741824.0f;
  return TwoFloat{sum.high, is_exact ? sum.low : 0.0f};
}

// Adds the paths to a state, extended by an arc, to a sum relative to `max`.
// There is no branch: the arcs of a state overlap.
template <typename T>
inline T AddPaths(T sum, float max, PathSum<T> state, float arc_score) {
  // A smaller term does not change the sum.
  const float kMinDiff = -64.0f;
  const TwoFloat score = AddScores(state.max, arc_score),
                 far = TwoSum(score.high, -max),
                 diff = TwoSum(far.high, far.low + score.low);
  const bool counts = diff.high > kMinDiff;  // not if it is NaN
  const T more =
      AddTimesExp(sum, state.sum, counts ? diff : TwoFloat{kMinDiff, 0.0f});
  return counts ? more : sum;
}

// Moves a large or small sum to `max`, lest later sums overflow.
template <typename T>
inline PathSum<T> MakeSum(float max, T sum) {
  if (!(metal::fabs(max) < INFINITY)) return OnePath<PathSum<T>>(max);
  const float size = Rounded(sum);
  if (size > 1.0f / kMaxSum && size < kMaxSum) return PathSum<T>{max, sum};
  int exponent;
  metal::frexp(size, exponent);
  const TwoFloat log = Mul(TwoFloat{static_cast<float>(exponent), 0.0f}, kLog2),
                 score = AddScores(max, log.high);
  return PathSum<T>{score.high, AddTimesExp(T{}, Scaled(sum, -exponent),
                                            TwoFloat{score.low, log.low})};
}

inline TwoFloat AsTwoFloat(float a) { return TwoFloat{a, 0.0f}; }
inline TwoFloat AsTwoFloat(TwoFloat a) { return a; }

template <typename T>
inline float ScoreOf(PathSum<T> sum) {
  return metal::fabs(sum.max) < INFINITY
             ? Add(AsTwoFloat(sum.max), Log(AsTwoFloat(sum.sum))).high
             : sum.max;
}

// These combine the values of the lanes that share a state.
inline float MaxOfLanes(float max, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2) {
    const float other = metal::simd_shuffle_xor(max, ushort(distance));
    max = other > max ? other : max;
  }
  return max;
}
inline float SumOfLanes(float sum, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2)
    sum += metal::simd_shuffle_xor(sum, ushort(distance));
  return sum;
}
inline TwoFloat SumOfLanes(TwoFloat sum, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2) {
    const TwoFloat other = {metal::simd_shuffle_xor(sum.high, ushort(distance)),
                            metal::simd_shuffle_xor(sum.low, ushort(distance))};
    sum = AddSameSign(sum, other);
  }
  return sum;
}

#endif  // K2_CSRC_MPS_KERNELS_CTC_SUMS_H_
