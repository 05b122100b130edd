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

#include "k2/csrc/mps/kernels/path_sums.h"

// For kernels only: types for sums over the paths to a state, or over an arc.
// In the tropical semiring, the sum is the best score.

// The score of the best path.
struct BestScore {
  float max;
};

// The sum over all paths, in single precision, and in nearly double precision.
typedef PathSum<float, float> FloatSum;
typedef PathSum<float, TwoFloat> DoubleSum;

// Returns whether a type is a sum over all paths, not the best path's score.
template <typename Sum>
constexpr bool HasAllPaths() {
  return true;
}
template <>
constexpr bool HasAllPaths<BestScore>() {
  return false;
}

template <>
inline BestScore OnePath<BestScore>(float score) {
  return BestScore{score};
}

inline BestScore Rounded(BestScore score) { return score; }

// These functions combine the values of the `width` lanes that share a state.
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
