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
// A path adds the exponential of its score to a sum.  The sum may be far
// outside of the range of floats, so a PathSum has an additional exponent.  In
// L. R. Rabiner, A tutorial on hidden Markov models, 1989, section V.A, sums
// are scaled in a similar way, but with one scale for all states of a frame.
//
// When an arc extends paths, their sum is multiplied by the exponential of the
// arc's score.  That exponential depends only on the arc, so a thread computes
// it before the sum of any state is known.  The operations are additions and
// multiplications as IEEE 754 defines them, so all GPUs give bit for bit the
// same results.

// The sum significand * 2^exponent.
//
// The exponent is an integer.  Its type is E, not int, because the exponent has
// the range of scores.  If the score of a sum is infinite or NaN, the exponent
// is that score.
//
// E   the type of the exponent, TwoFloat or float.  With TwoFloat, the
//     significand is about 1.  A float cannot hold each integer over 2^24, so
//     with float, the significand is between 2^-18 and 2^18.
// T   the type of the significand, float or TwoFloat
template <typename E, typename T>
struct PathSum {
  E exponent;
  T significand;
};

// 2^29, the exponent of a score of 3.7e8.
//
// The distance between floats below 2^29 is at most 32.  So the significands of
// a state and of an arc are between 2^-17 and 2^17, and rounding changes the
// largest exponent of a sum by at most 16.  Relative to 2^(the rounded
// exponent), the largest term of the sum is over 2^-50, and the terms that
// AddPaths() leaves out are below 2^-76.
constant float kMaxExponent = 536870912.0f;

// Returns the bound below which exponents of a type are exact.  The bound for
// pairs is the exponent of a score of 1e13.
inline float MaxExponent(float) { return kMaxExponent; }
inline float MaxExponent(TwoFloat) { return 1.44269502e13f; }

// Operations that are defined for floats and for pairs.
inline float Rounded(float a) { return a; }
inline float Rounded(TwoFloat a) { return a.high; }
inline TwoFloat AsTwoFloat(float a) { return TwoFloat{a, 0.0f}; }
inline TwoFloat AsTwoFloat(TwoFloat a) { return a; }
inline float Product(float a, float b) { return a * b; }
inline TwoFloat Product(TwoFloat a, TwoFloat b) { return Mul(a, b); }
inline float Quotient(float a, float b) { return a / b; }
inline TwoFloat Quotient(TwoFloat a, TwoFloat b) { return Div(a, b); }
// Returns sum + a * b, for positive numbers.
inline float AddProduct(float sum, float a, float b) {
  return metal::fma(a, b, sum);
}
inline TwoFloat AddProduct(TwoFloat sum, TwoFloat a, TwoFloat b) {
  return AddSameSign(sum, Mul(a, b));
}
// Returns a * factor.  The factor must be a power of 2.
inline float Times(float a, float factor) { return a * factor; }
inline TwoFloat Times(TwoFloat a, float factor) {
  return TwoFloat{a.high * factor, a.low * factor};
}
inline float Scaled(float a, int exponent) {
  return Ldexp(TwoFloat{a, 0.0f}, exponent).high;
}
inline TwoFloat Scaled(TwoFloat a, int exponent) { return Ldexp(a, exponent); }

template <typename E, typename T>
inline PathSum<float, float> Rounded(PathSum<E, T> sum) {
  return PathSum<float, float>{Rounded(sum.exponent), Rounded(sum.significand)};
}

// Returns the sum over one path, whose score must be 0, infinite or NaN.
template <typename Sum>
inline Sum OnePath(float score);
template <>
inline PathSum<float, float> OnePath<PathSum<float, float>>(float score) {
  return PathSum<float, float>{score, 1.0f};
}
template <>
inline PathSum<float, TwoFloat> OnePath<PathSum<float, TwoFloat>>(float score) {
  return PathSum<float, TwoFloat>{score, {1.0f, 0.0f}};
}
template <>
inline PathSum<TwoFloat, TwoFloat> OnePath<PathSum<TwoFloat, TwoFloat>>(
    float score) {
  return PathSum<TwoFloat, TwoFloat>{{score, 0.0f}, {1.0f, 0.0f}};
}

// Returns 2^exponent for an integer between -126 and 127.
inline float PowerOf2(float exponent) {
  // Floats between 2^23 and 2^24 are integers, so the low bits of the sum are
  // those of exponent + 127.
  return as_type<float>(as_type<int>(exponent + 12583039.0f) << 23);
}

// Returns the sum of two exponents as a pair.  If the exponents are floats and
// the sum reaches kMaxExponent in magnitude, the low part is 0.  With another
// low part, a caller might have to multiply a significand by too large a power
// of 2.
inline TwoFloat AddExponents(float a, float b) {
  const TwoFloat sum = TwoSum(a, b);
  const bool is_exact = metal::fabs(sum.high) < kMaxExponent;
  return TwoFloat{sum.high, is_exact ? sum.low : 0.0f};
}
inline TwoFloat AddExponents(TwoFloat a, TwoFloat b) {
  const TwoFloat sum = TwoSum(a.high, b.high);
  const TwoFloat exact = QuickTwoSum(sum.high, sum.low + (a.low + b.low));
  // If the sum is infinite, the computed errors of the sum are NaN.
  const bool is_finite = metal::fabs(sum.high) < INFINITY;
  return TwoFloat{is_finite ? exact.high : sum.high,
                  is_finite ? exact.low : 0.0f};
}

// Returns exponent - base as a float.  `base` may be an exponent that was
// rounded to a float.
inline float Shift(TwoFloat exponent, float base) {
  return (exponent.high - base) + exponent.low;
}
inline float Shift(TwoFloat exponent, TwoFloat base) {
  return (exponent.high - base.high) + (exponent.low - base.low);
}

// A score, written as multiple * log(2) + rest, where |rest| < 6e5.
struct SplitScore {
  float multiple;
  TwoFloat rest;
};

// Returns whether Split() may split a score.  If not, ExpOfRest() of the score
// and FloatExp() return the same bits.
inline bool IsLarge(float score) { return metal::fabs(score) > 5e5f; }

// Splits a score.  If the score is NaN, or its magnitude is below 5e5 or over
// 1e13, the rest is the score itself.
inline SplitScore Split(float score) {
  const bool is_large = IsLarge(score) && metal::fabs(score) < 1e13f;
  const float multiple = is_large ? metal::rint(score * 1.44269502f) : 0.0f;
  // The fma() with kLog2.high has no rounding error, and `low` includes the
  // rounding error of `second`.  So the rest is the score minus an exact
  // multiple of the pair kLog2.  The error of kLog2 itself cancels in a
  // posterior.
  const float second = metal::fma(-multiple, kLog2.low, 0.0f);
  const TwoFloat rest =
      TwoSum(metal::fma(-multiple, kLog2.high, score), second);
  const float low = rest.low + metal::fma(-multiple, kLog2.low, -second);
  return SplitScore{multiple, {rest.high, is_large ? low : 0.0f}};
}

// Returns exp(rest) for a rest that Split() returned.
template <typename T>
inline PathSum<float, T> ExpOfRest(float rest);
template <>
inline PathSum<float, float> ExpOfRest<float>(float score) {
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
  return PathSum<float, float>{exponent, metal::fma(series, y * y, y) + 1.0f};
}
template <>
inline PathSum<float, TwoFloat> ExpOfRest<TwoFloat>(float score) {
  const ReducedExp reduced = ReduceExp(score);
  const float exponent = metal::floor(reduced.n * 0.0625f);
  // The low bits of the sum are the number, as in PowerOf2().  Unlike a
  // conversion to int, this method is also defined if the number is infinite or
  // NaN.  The power of 2 then does not matter.
  const float number = metal::fma(-16.0f, exponent, reduced.n);
  const int i = as_type<int>(number + 12582912.0f) & 15;
  const TwoFloat power = kPowersOf2[i];
  return PathSum<float, TwoFloat>{exponent,
                                  AddSmaller(power, Mul(power, reduced.expm1))};
}

// Return exp(b) - 1 and a * exp(b) for |b| <= 2^-5.  The error of exp(b) is
// about b^4 / 24.
inline float SmallExpm1(float b) {
  return metal::fma(metal::fma(b, 0.166666672f, 0.5f), b * b, b);
}
inline float TimesExp(float a, float b) {
  return metal::fma(a, SmallExpm1(b), a);
}
inline TwoFloat TimesExp(TwoFloat a, float b) {
  return QuickTwoSum(a.high, metal::fma(a.high, SmallExpm1(b), a.low));
}

// Returns exp(score).  If the score is so large that a float cannot hold the
// exact exponent, the significand is multiplied by the missing power of 2.
template <typename T>
inline PathSum<float, T> FloatExp(float score) {
  if (!IsLarge(score)) return ExpOfRest<T>(score);
  const SplitScore split = Split(score);
  const PathSum<float, T> exp = ExpOfRest<T>(split.rest.high);
  const TwoFloat exponent = AddExponents(split.multiple, exp.exponent);
  return PathSum<float, T>{
      exponent.high,
      Times(TimesExp(exp.significand, split.rest.low), PowerOf2(exponent.low))};
}
template <typename Sum>
inline Sum ExpOf(float score);
template <>
inline PathSum<float, float> ExpOf<PathSum<float, float>>(float score) {
  return FloatExp<float>(score);
}
template <>
inline PathSum<float, TwoFloat> ExpOf<PathSum<float, TwoFloat>>(float score) {
  return FloatExp<TwoFloat>(score);
}
template <>
inline PathSum<TwoFloat, TwoFloat> ExpOf<PathSum<TwoFloat, TwoFloat>>(
    float score) {
  const SplitScore split = Split(score);
  const PathSum<float, TwoFloat> exp = ExpOfRest<TwoFloat>(split.rest.high);
  return PathSum<TwoFloat, TwoFloat>{QuickTwoSum(split.multiple, exp.exponent),
                                     TimesExp(exp.significand, split.rest.low)};
}

// Extends the paths of a state by an arc, and adds them to a sum.  `arc` is the
// exponential of the arc's score.  The sum is relative to 2^max, and `max` is
// about the largest exponent of the terms.  There is no branch, so that a GPU
// can compute several arcs of a state at the same time.
template <typename E, typename T>
inline T AddPaths(T sum, E max, PathSum<E, T> state, PathSum<E, T> arc) {
  // Terms with smaller exponents do not change the sum, see kMaxExponent.
  const float kMinShift = -110.0f;
  const float shift = Shift(AddExponents(state.exponent, arc.exponent), max);
  const float power =
      shift > kMinShift ? PowerOf2(shift) : 0.0f;  // 0 also for a NaN
  return AddProduct(sum, state.significand, Times(arc.significand, power));
}

// Returns the exponent of a positive float.
inline float ExponentOf(float a) {
  return static_cast<float>((as_type<int>(a) >> 23) - 127);
}

// Returns sum * 2^max with a significand near 1.
template <typename T>
inline PathSum<float, T> MakeSum(float max, T sum) {
  if (!(metal::fabs(max) < INFINITY)) return OnePath<PathSum<float, T>>(max);
  const float size = ExponentOf(Rounded(sum));
  const TwoFloat exponent = AddExponents(max, size);
  return PathSum<float, T>{exponent.high,
                           Times(sum, PowerOf2(exponent.low - size))};
}
template <typename T>
inline PathSum<TwoFloat, T> MakeSum(TwoFloat max, T sum) {
  if (!(metal::fabs(max.high) < INFINITY))
    return OnePath<PathSum<TwoFloat, T>>(max.high);
  const float size = ExponentOf(Rounded(sum));
  return PathSum<TwoFloat, T>{AddExponents(max, TwoFloat{size, 0.0f}),
                              Times(sum, PowerOf2(-size))};
}

// MaxInOrder() and AddInOrder() treat a NaN as k2's CPU code does.  That code
// calls LogAdd() (k2/csrc/utils.h) for one arc after another.  After a NaN, its
// sum begins again with the next arc.  The caller passes all arcs to
// MaxInOrder(), and then all arcs to AddInOrder().
template <typename T>
inline TwoFloat MaxInOrder(TwoFloat max, PathSum<TwoFloat, T> state,
                           PathSum<TwoFloat, T> arc) {
  const TwoFloat exponent = AddExponents(state.exponent, arc.exponent);
  const bool is_less = exponent.high < max.high ||
                       (exponent.high == max.high && exponent.low <= max.low);
  return is_less ? max : exponent;
}
template <typename T>
inline T AddInOrder(T sum, TwoFloat max, PathSum<TwoFloat, T> state,
                    PathSum<TwoFloat, T> arc) {
  const T more = AddPaths(sum, max, state, arc);
  return metal::isnan(state.exponent.high + arc.exponent.high) ? T{} : more;
}

// Returns the logarithm of a sum.
template <typename E, typename T>
inline TwoFloat ScoreOf(PathSum<E, T> sum) {
  const TwoFloat exponent = AsTwoFloat(sum.exponent);
  return metal::fabs(exponent.high) < INFINITY
             ? Add(Mul(exponent, kLog2), Log(AsTwoFloat(sum.significand)))
             : exponent;
}

// Returns the sum itself.
template <typename T>
inline T ValueOf(PathSum<float, T> sum) {
  // Beyond these exponents, the sum is 0, infinite or NaN.
  if (metal::fabs(sum.exponent) < 250.0f)
    return Scaled(sum.significand, static_cast<int>(sum.exponent));
  return Times(OnePath<PathSum<float, T>>(0.0f).significand,
               metal::precise::exp(sum.exponent));
}

// Returns the posterior of an arc.  The posterior's significand need not be
// near 1.
//
// forward    the forward sum of the arc's source state
// arc        the exponential of the arc's score
// backward   the backward sum of the arc's destination state
// total      the sum of all paths
//
// If there is no path, the posterior is 0.  If scores are infinite or NaN, the
// exponent is the sum of the scores.
template <typename E, typename T>
inline PathSum<float, T> PosteriorOf(PathSum<E, T> forward, PathSum<E, T> arc,
                                     PathSum<E, T> backward,
                                     PathSum<E, T> total) {
  const TwoFloat of_total = AsTwoFloat(total.exponent),
                 minus_total =
                     of_total.high == -INFINITY ? of_total : Negative(of_total);
  const float rough = Rounded(forward.exponent) + Rounded(arc.exponent) +
                      Rounded(backward.exponent) + minus_total.high;
  if (!(metal::fabs(rough) < INFINITY))
    return OnePath<PathSum<float, T>>(rough);
  const float exponent = Add(Add(AddExponents(forward.exponent, arc.exponent),
                                 AsTwoFloat(backward.exponent)),
                             minus_total)
                             .high;
  // If exponents are rounded, the posterior is not reliable, so its exponent is
  // limited to 0.
  const bool is_exact =
      metal::fabs(of_total.high) < MaxExponent(total.exponent);
  return PathSum<float, T>{
      is_exact || exponent < 0.0f ? exponent : 0.0f,
      Product(Product(forward.significand, arc.significand),
              Quotient(backward.significand, total.significand))};
}

#endif  // K2_CSRC_MPS_KERNELS_PATH_SUMS_H_
