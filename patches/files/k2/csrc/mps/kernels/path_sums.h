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

#ifndef K2_CSRC_MPS_KERNELS_PATH_SUMS_H_
#define K2_CSRC_MPS_KERNELS_PATH_SUMS_H_

#include "k2/csrc/mps/kernels/two_float.h"

// For kernels only: sums over paths, without logarithms.
//
// A path with a score contributes exp(score) to a sum.  The sum may be far
// outside of the range of floats, so a PathSum has an exponent of its own, as
// in L. R. Rabiner, A tutorial on hidden Markov models, 1989, section V.A,
// where all states of a frame share one scale.
//
// Where an arc extends paths, their sum is multiplied by the exponential of the
// arc's score.  No state waits for that exponential: it depends on the arc
// alone.  Sums and products of IEEE suffice, so all GPUs give the same bits.

// The sum significand * 2^exponent, where T is float or TwoFloat.
//
// The exponent is an integer, as a float: it has the range of scores.  The
// significand is about 1; where the exponent is over 2^24, and has a unit above
// 1, it is between 2^-64 and 2^64.  If the score of a sum is infinite or NaN,
// the exponent is that score.
template <typename T>
struct PathSum {
  float exponent;
  T significand;
};

// What significands of both types have.
inline float Rounded(float a) { return a; }
inline float Rounded(TwoFloat a) { return a.high; }
inline TwoFloat AsTwoFloat(float a) { return TwoFloat{a, 0.0f}; }
inline TwoFloat AsTwoFloat(TwoFloat a) { return a; }
inline float Product(float a, float b) { return a * b; }
inline TwoFloat Product(TwoFloat a, TwoFloat b) { return Mul(a, b); }
inline float Quotient(float a, float b) { return a / b; }
inline TwoFloat Quotient(TwoFloat a, TwoFloat b) { return Div(a, b); }
// For a factor that is a power of 2.
inline float Times(float a, float factor) { return a * factor; }
inline TwoFloat Times(TwoFloat a, float factor) {
  return TwoFloat{a.high * factor, a.low * factor};
}
inline float Scaled(float a, int exponent) {
  return Ldexp(TwoFloat{a, 0.0f}, exponent).high;
}
inline TwoFloat Scaled(TwoFloat a, int exponent) { return Ldexp(a, exponent); }

template <typename T>
inline PathSum<float> Rounded(PathSum<T> sum) {
  return PathSum<float>{sum.exponent, Rounded(sum.significand)};
}

// The sum of one path whose score is 0, infinite or NaN.
template <typename Sum>
inline Sum OnePath(float score);
template <>
inline PathSum<float> OnePath<PathSum<float>>(float score) {
  return PathSum<float>{score, 1.0f};
}
template <>
inline PathSum<TwoFloat> OnePath<PathSum<TwoFloat>>(float score) {
  return PathSum<TwoFloat>{score, {1.0f, 0.0f}};
}

// 2^exponent for an integer between -126 and 127.
inline float PowerOf2(float exponent) {
  // Floats near 2^23 have the unit 1: the low bits of this sum are exponent +
  // 127.
  return as_type<float>(as_type<int>(exponent + 12583039.0f) << 23);
}

// 2^30, which stands for scores of 7e8.
constant float kMaxExactExponent = 1073741824.0f;

// Returns a + b, without an error where the sum is below kMaxExactExponent. The
// error of a larger sum may be too large for a significand.
inline TwoFloat AddExponents(float a, float b) {
  const TwoFloat sum = TwoSum(a, b);
  const bool is_exact = metal::fabs(sum.high) < kMaxExactExponent;
  return TwoFloat{sum.high, is_exact ? sum.low : 0.0f};
}

// exp(score); see ReduceExp() for large scores.
template <typename T>
inline PathSum<T> ExpOf(float score);
template <>
inline PathSum<TwoFloat> ExpOf<TwoFloat>(float score) {
  const ReducedExp reduced = ReduceExp(score);
  const float exponent = metal::floor(reduced.n * 0.0625f);
  // An infinite exponent or NaN has any of the powers.
  const int i = static_cast<int>(metal::fma(-16.0f, exponent, reduced.n)) & 15;
  const TwoFloat power = kPowersOf2[i];
  return PathSum<TwoFloat>{exponent,
                           AddSmaller(power, Mul(power, reduced.expm1))};
}
template <>
inline PathSum<float> ExpOf<float>(float score) {
  // log(2) in two parts, as in ReduceExp().
  const float kPart1 = 0.693147182f, kPart2 = -1.90465421e-9f;
  const float exponent = metal::rint(
                  metal::fma(score, 1.44269502f, score * 1.92596299e-8f)),
              rest = metal::fma(-exponent, kPart2,
                                metal::fma(-exponent, kPart1, score)),
              y = metal::clamp(rest, -0.5f, 0.5f);
  float series = 1.98412701e-4f;
  series = metal::fma(series, y, 1.38888892e-3f);
  series = metal::fma(series, y, 8.33333377e-3f);
  series = metal::fma(series, y, 4.16666679e-2f);
  series = metal::fma(series, y, 0.166666672f);
  series = metal::fma(series, y, 0.5f);
  return PathSum<float>{exponent, metal::fma(series, y * y, y) + 1.0f};
}

// sum + a * b, for positive numbers
inline float AddProduct(float sum, float a, float b) {
  return metal::fma(a, b, sum);
}
inline TwoFloat AddProduct(TwoFloat sum, TwoFloat a, TwoFloat b) {
  return AddSameSign(sum, Mul(a, b));
}

// Adds the paths to a state, extended by an arc with this exponential, to a sum
// relative to 2^max.  There is no branch: the arcs of a state overlap.
template <typename T>
inline T AddPaths(T sum, float max, PathSum<T> state, PathSum<T> arc) {
  // A smaller term does not change the sum.
  const float kMinShift = -100.0f;
  const TwoFloat exponent = AddExponents(state.exponent, arc.exponent);
  const float shift = (exponent.high - max) + exponent.low;
  const float power =
      shift > kMinShift ? PowerOf2(shift) : 0.0f;  // also if it is NaN
  return AddProduct(sum, state.significand, Times(arc.significand, power));
}

// Returns sum * 2^max with a significand near 1.
template <typename T>
inline PathSum<T> MakeSum(float max, T sum) {
  if (!(metal::fabs(max) < INFINITY)) return OnePath<PathSum<T>>(max);
  const float size =
      static_cast<float>((as_type<int>(Rounded(sum)) >> 23) - 127);
  const TwoFloat exponent = AddExponents(max, size);
  return PathSum<T>{exponent.high, Times(sum, PowerOf2(exponent.low - size))};
}

// The next two add up arcs as LogAdd() in k2/csrc/utils.h does in the order of
// the arcs: after a NaN, the sum begins again with the next arc.  First all
// arcs go through MaxInOrder(), then all through AddInOrder().
template <typename T>
inline float MaxInOrder(float max, PathSum<T> state, PathSum<T> arc) {
  const float exponent = AddExponents(state.exponent, arc.exponent).high;
  return exponent <= max ? max : exponent;
}
template <typename T>
inline T AddInOrder(T sum, float max, PathSum<T> state, PathSum<T> arc) {
  const T more = AddPaths(sum, max, state, arc);
  return metal::isnan(state.exponent + arc.exponent) ? T{} : more;
}

// The logarithm of a sum.
template <typename T>
inline TwoFloat ScoreOf(PathSum<T> sum) {
  const TwoFloat exponent = {sum.exponent, 0.0f};
  return metal::fabs(sum.exponent) < INFINITY
             ? Add(Mul(exponent, kLog2), Log(AsTwoFloat(sum.significand)))
             : exponent;
}

// The sum itself.
template <typename T>
inline T ValueOf(PathSum<T> sum) {
  // With a larger exponent the sum is 0, infinite or NaN.
  if (metal::fabs(sum.exponent) < 250.0f)
    return Scaled(sum.significand, static_cast<int>(sum.exponent));
  return Times(OnePath<PathSum<T>>(0.0f).significand,
               metal::precise::exp(sum.exponent));
}

// Returns the posterior of an arc, with any positive significand.
//
// forward    the forward sum of the arc's source
// arc        the exponential of the arc's score
// backward   the backward sum of its destination
// total      the sum of all paths
//
// If there is no path, the posterior is 0.  If scores are infinite or NaN, the
// exponent is their sum.
template <typename T>
inline PathSum<T> PosteriorOf(PathSum<T> forward, PathSum<T> arc,
                              PathSum<T> backward, PathSum<T> total) {
  const float minus_total =
      total.exponent == -INFINITY ? -INFINITY : -total.exponent;
  const float rough =
      forward.exponent + arc.exponent + backward.exponent + minus_total;
  if (!(metal::fabs(rough) < INFINITY)) return OnePath<PathSum<T>>(rough);
  const float exponent =
      Add(Add(TwoSum(forward.exponent, arc.exponent), backward.exponent),
          minus_total)
          .high;
  // Where exponents are not exact, a posterior may be wrong, but not large.
  const bool is_exact = metal::fabs(total.exponent) < kMaxExactExponent;
  return PathSum<T>{is_exact ? exponent : metal::min(exponent, 0.0f),
                    Product(Product(forward.significand, arc.significand),
                            Quotient(backward.significand, total.significand))};
}

#endif  // K2_CSRC_MPS_KERNELS_PATH_SUMS_H_
