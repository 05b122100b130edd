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

#ifndef K2_CSRC_MPS_KERNELS_TWO_FLOAT_H_
#define K2_CSRC_MPS_KERNELS_TWO_FLOAT_H_

// For kernels only: nearly double precision, which Metal does not have, by
// pairs of floats.
//
// A pair of floats stands for their sum.  The smaller float is at most half a
// unit in the last place of the larger one, so both have 48 bits.
// Two sums of floats yield such pairs without an error (D. E. Knuth, The Art of
// Computer Programming, volume 2, section 4.2.2; T. J. Dekker, A floating-point
// technique for extending the available precision, 1971).  The operations on
// pairs are in M. Joldes, J.-M. Muller, V. Popescu, Tight and rigorous error
// bounds for basic building blocks of double-word arithmetic, 2017.
//
// Results are right under IEEE's rules only, so the library is compiled without
// fast math.  Contraction, the fusion of a product and a sum, changes no bit:
// no rounded product is an operand of a sum.  Each product stands in an fma(),
// is exact, or is the argument of a function.
//
// Relative errors, of any operands that do not overflow or underflow:
//   TwoSum, QuickTwoSum            none
//   Add                            3 * 2^-48, also of operands of unlike signs
//   AddSameSign                    3 * 2^-48
//   Mul, Div                       2^-46, 2^-45
//   Exp                            2^-46
//   RoundedExp                     2^-23
//   Log                            2^-44, of numbers near 1 as well
// The paper proves the bounds of the sums.  The other bounds are measured: more
// than a million numbers for each function stay below them, and the tests check
// them.

#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct TwoFloat {
  float high, low;  // the number is high + low; `high` is the number, rounded
};

// The sum of any two floats.
inline TwoFloat TwoSum(float a, float b) {
  const float sum = a + b, b_of_sum = sum - a;
  return TwoFloat{sum, (a - (sum - b_of_sum)) + (b - b_of_sum)};
}

// The sum of two floats if |a| >= |b| or a == 0.
inline TwoFloat QuickTwoSum(float a, float b) {
  const float sum = a + b;
  return TwoFloat{sum, b - (sum - a)};
}

inline TwoFloat Add(TwoFloat a, TwoFloat b) {
  const TwoFloat high = TwoSum(a.high, b.high), low = TwoSum(a.low, b.low),
                 sum = QuickTwoSum(high.high, high.low + low.high);
  return QuickTwoSum(sum.high, sum.low + low.low);
}

// Where the sum of the floats is infinite or NaN, returns that sum.  The other
// Add() returns NaN there.
inline TwoFloat Add(TwoFloat a, float b) {
  const TwoFloat sum = TwoSum(a.high, b);
  if (!(metal::fabs(sum.high) < INFINITY)) return TwoFloat{sum.high, 0.0f};
  return QuickTwoSum(sum.high, sum.low + a.low);
}

// For operands of one sign.
inline TwoFloat AddSameSign(TwoFloat a, TwoFloat b) {
  const TwoFloat sum = TwoSum(a.high, b.high);
  return QuickTwoSum(sum.high, sum.low + (a.low + b.low));
}

// For |b| < |a| / 2.
inline TwoFloat AddSmaller(TwoFloat a, TwoFloat b) {
  const TwoFloat sum = QuickTwoSum(a.high, b.high);
  return QuickTwoSum(sum.high, sum.low + (a.low + b.low));
}

inline TwoFloat Negative(TwoFloat a) { return TwoFloat{-a.high, -a.low}; }

// Rounds the product once, together with its small terms: no rounded product is
// an operand of a sum.
inline TwoFloat Mul(TwoFloat a, TwoFloat b) {
  const float small = metal::fma(a.high, b.low, a.low * b.high),
              product = metal::fma(a.high, b.high, small);
  return TwoFloat{product, metal::fma(a.high, b.high, -product) + small};
}

inline TwoFloat Div(TwoFloat a, TwoFloat b) {
  const float quotient = a.high / b.high,
              rest = metal::fma(-quotient, b.high, a.high) +
                     metal::fma(-quotient, b.low, a.low);
  return QuickTwoSum(quotient, rest / b.high);
}

// For -126 <= exponent <= 127.
inline float PowerOf2(int exponent) {
  return as_type<float>((exponent + 127) << 23);
}

// a * 2^exponent for |exponent| <= 252, in less time than metal::ldexp() takes.
inline TwoFloat Ldexp(TwoFloat a, int exponent) {
  const int part = exponent >> 1;
  const float first = PowerOf2(part), second = PowerOf2(exponent - part);
  return TwoFloat{a.high * first * second, a.low * first * second};
}

inline bool IsLess(TwoFloat a, TwoFloat b) {
  return a.high < b.high || (a.high == b.high && a.low < b.low);
}

constant TwoFloat kLog2 = {0.693147182f, -1.90465421e-9f};

// 2^(i / 16)
constant TwoFloat kPowersOf2[16] = {
    {1.0f, 0.0f},
    {1.04427373f, 4.83347016e-08f},
    {1.09050775f, -1.30775399e-08f},
    {1.13878858f, 5.38622231e-08f},
    {1.18920708f, 3.79763527e-08f},
    {1.24185777f, 4.4968381e-08f},
    {1.29683959f, -4.01899953e-08f},
    {1.35425556f, -1.01233493e-08f},
    {1.41421354f, 2.4203235e-08f},
    {1.47682619f, -4.50089885e-08f},
    {1.54221082f, 8.07090483e-09f},
    {1.61049032f, 9.83621717e-09f},
    {1.68179286f, -2.47553267e-08f},
    {1.75625217f, -9.23577037e-09f},
    {1.8340081f, -1.1239278e-08f},
    {1.91520655f, 9.84532811e-09f},
};

// exp(x) = 2^(n / 16) * (1 + expm1)
struct ReducedExp {
  int n;
  TwoFloat expm1;
};

// For |x| <= 5e5.
inline ReducedExp ReduceExp(TwoFloat x) {
  // log(2) / 16 in three parts.
  const float kPart1 = 0.0433216989f, kPart2 = -1.19040888e-10f,
              kPart3 = -5.48948984e-18f;
  const float n = metal::rint(x.high * 23.0831203f);
  // x.high and n * kPart1 are both close to `near`, a multiple of 1/16, so
  // their differences to it are floats without an error.  So is that of n *
  // kPart2 to `near2`, a multiple of 2^-28.
  const float near = metal::rint(x.high * 16.0f) * 0.0625f,
              near2 = metal::rint(n * kPart2 * 268435456.0f) * 3.7252903e-9f;
  const TwoFloat sum =
      TwoSum(x.high - near, metal::fma(-n, kPart1, near) - near2);
  const TwoFloat rest = TwoSum(sum.high, x.low);
  const TwoFloat y =
      QuickTwoSum(rest.high, sum.low + (metal::fma(-n, kPart2, near2) +
                                        metal::fma(-n, kPart3, rest.low)));

  // The sum of y + y^2 / 2 + y^3 / 6 + ... for |y| <= log(2) / 32.  The first
  // terms are pairs.
  const float series =
      metal::fma(metal::fma(metal::fma(1.98412701e-4f, y.high, 1.38888892e-3f),
                            y.high, 8.33333377e-3f),
                 y.high, 4.16666679e-2f);
  TwoFloat cubes =
      QuickTwoSum(0.166666672f, metal::fma(y.high, series, -4.96705388e-9f));
  cubes = Mul(y, cubes);
  TwoFloat squares = QuickTwoSum(0.5f, cubes.high);
  squares = Mul(y, QuickTwoSum(squares.high, squares.low + cubes.low));
  return ReducedExp{static_cast<int>(n), AddSmaller(y, Mul(y, squares))};
}

// Returns exp(x) * 2^-exponent, between 0.97 and 2.05, for |x| <= 5e5.
inline TwoFloat Exp(TwoFloat x, thread int &exponent) {
  const ReducedExp reduced = ReduceExp(x);
  const TwoFloat power = kPowersOf2[reduced.n & 15];
  exponent = reduced.n >> 4;
  return AddSmaller(power, Mul(power, reduced.expm1));
}

// For |x| <= 104.
inline TwoFloat Exp(TwoFloat x) {
  int exponent;
  const TwoFloat ans = Exp(x, exponent);
  return Ldexp(ans, exponent);
}

// exp(x), rounded, for |x| <= 104.
inline float RoundedExp(TwoFloat x) {
  // log(2) in two parts.  The first one has 10 bits.
  const float kPart1 = 0.693359375f, kPart2 = -2.12194442e-4f;
  const float n = metal::rint(x.high * 1.44269502f),
              y = metal::fma(-n, kPart2, metal::fma(-n, kPart1, x.high)) +
                  x.low;
  float series = 1.98412701e-4f;
  series = metal::fma(series, y, 1.38888892e-3f);
  series = metal::fma(series, y, 8.33333377e-3f);
  series = metal::fma(series, y, 4.16666679e-2f);
  series = metal::fma(series, y, 0.166666672f);
  series = metal::fma(series, y, 0.5f);
  const float exp = metal::fma(series, y * y, y) + 1.0f;
  return Ldexp(TwoFloat{exp, 0.0f}, static_cast<int>(n)).high;
}

// exp(x) - 1 for |x| <= 1; near 0 as well.
inline TwoFloat Expm1(TwoFloat x) {
  const ReducedExp reduced = ReduceExp(x);
  const TwoFloat power = Ldexp(kPowersOf2[reduced.n & 15], reduced.n >> 4);
  return Add(QuickTwoSum(power.high - 1.0f, power.low),
             Mul(power, reduced.expm1));
}

// log(x) for finite x > 0 that is no subnormal number.
inline TwoFloat Log(TwoFloat x) {
  // x = (1 + y) * 2^exponent with 1 + y between 0.7 and 1.42.
  int exponent;
  metal::frexp(x.high * 1.41421354f, exponent);
  --exponent;
  const TwoFloat scaled = Ldexp(x, -exponent),
                 y = QuickTwoSum(scaled.high - 1.0f, scaled.low);
  // One step of Newton's method from a float: z = (1 + y) * exp(-start) - 1.
  const float start = metal::fabs(y.high) < 1e-3f
                          ? metal::fma(-0.5f * y.high, y.high, y.high)
                          : metal::precise::log(1.0f + y.high);
  const TwoFloat expm1 = Expm1(TwoFloat{-start, 0.0f}),
                 z = Add(Add(y, expm1), Mul(y, expm1)),
                 sum = QuickTwoSum(start, z.high);
  const TwoFloat log1p = QuickTwoSum(
      sum.high, sum.low + metal::fma(-0.5f * z.high, z.high, z.low));
  const TwoFloat exponents = {static_cast<float>(exponent), 0.0f};
  return Add(Mul(exponents, kLog2), log1p);
}

// A score r + log(m), the logarithm of a sum of exponentials.
//
// r is about the score of the best path, and m is the sum relative to r,
// between 1 and kMaxSum.  In this form, an addition of two scores and the score
// of an arc behind a path need no logarithm.  If r is infinite or NaN, r is the
// score.
//
// Several threads can add up arcs in two passes:
//
//   TwoFloat r = kNoScore;
//   for (...) r = MaxOfArcs(r, score_of_state, score_of_arc);
//   TwoFloat m = {0.0f, 0.0f};
//   for (...) m = SumOfArcs(m, r, score_of_state, score_of_arc);
//   LogSum sum = MakeLogSum(r, m);
//
// After a NaN, the sum begins again with the next arc, as with LogAdd() in the
// order of the arcs.
struct LogSum {
  TwoFloat r, m;
};

constant TwoFloat kNoScore = {-INFINITY, 0.0f};
constant float kMaxSum = 65536.0f;
// A sum leaves out a term whose score is lower than r by more than this: its
// exponential is 0 in float.
constant float kMaxDiff = 104.0f;

inline LogSum ToLogSum(float score) {
  return LogSum{{score, 0.0f}, {1.0f, 0.0f}};
}

inline TwoFloat MaxOfArcs(TwoFloat r, LogSum state, float arc_score) {
  const TwoFloat score = Add(state.r, arc_score);
  const bool is_less =
      score.high < r.high || (score.high == r.high && score.low <= r.low);
  return is_less ? r : score;
}

inline TwoFloat SumOfArcs(TwoFloat m, TwoFloat r, LogSum state,
                          float arc_score) {
  const TwoFloat score = Add(state.r, arc_score),
                 diff = Add(score, Negative(r));
  // What this leaves out is too small to change m, or infinite, or comes before
  // a NaN.  There is no branch: the arcs of a state overlap.
  const bool counts = metal::fabs(diff.high) <= kMaxDiff;
  const TwoFloat x = counts ? diff : TwoFloat{0.0f, 0.0f},
                 more = AddSameSign(m, Mul(state.m, Exp(x))),
                 less = metal::isnan(score.high) ? TwoFloat{0.0f, 0.0f} : m;
  return counts ? more : less;
}

inline LogSum MakeLogSum(TwoFloat r, TwoFloat m) {
  if (!(metal::fabs(r.high) < INFINITY)) return ToLogSum(r.high);
  if (m.high < kMaxSum) return LogSum{r, m};
  int exponent;
  metal::frexp(m.high, exponent);
  --exponent;
  const TwoFloat exponents = {static_cast<float>(exponent), 0.0f};
  return LogSum{Add(r, Mul(exponents, kLog2)), Ldexp(m, -exponent)};
}

// Returns the score of the paths to a state, extended by an arc.
inline LogSum Follow(LogSum state, float arc_score) {
  const TwoFloat r = Add(state.r, arc_score);
  return metal::fabs(r.high) < INFINITY ? LogSum{r, state.m} : ToLogSum(r.high);
}

// As LogAdd in k2/csrc/utils.h, for NaN and infinities as well.  With it, one
// thread adds up several arcs in one pass.
inline LogSum LogAdd(LogSum x, LogSum y) {
  const TwoFloat diff = Add(x.r, Negative(y.r));
  if (!(metal::fabs(diff.high) <= kMaxDiff)) return x.r.high < y.r.high ? y : x;
  const bool is_less = diff.high < 0.0f;
  const LogSum larger = is_less ? y : x, smaller = is_less ? x : y;
  return MakeLogSum(
      larger.r,
      AddSameSign(larger.m,
                  Mul(smaller.m, Exp(is_less ? diff : Negative(diff)))));
}

inline TwoFloat Score(LogSum a) {
  return metal::fabs(a.r.high) < INFINITY ? Add(a.r, Log(a.m)) : a.r;
}

// An arc's posterior, whose logarithm is r + log(m).  Unlike in a LogSum, m may
// be any positive number.  If r is infinite or NaN, r is the logarithm.
struct ArcPosterior {
  TwoFloat r, m;
};

// Returns the posterior of an arc in an FSA with the score `total`.
//
// forward    the forward score of the arc's source
// backward   the backward score of its destination
//
// If scores are infinite, r is their sum; if there is no path, r is -infinity.
inline ArcPosterior GetPosterior(LogSum forward, float arc_score,
                                 LogSum backward, LogSum total) {
  const float minus_total =
      total.r.high == -INFINITY ? -INFINITY : -total.r.high;
  const float rough =
      arc_score + forward.r.high + backward.r.high + minus_total;
  if (!(metal::fabs(rough) < INFINITY))
    return ArcPosterior{{rough, 0.0f}, {1.0f, 0.0f}};
  return ArcPosterior{
      Add(Add(Add(forward.r, arc_score), backward.r), Negative(total.r)),
      Div(Mul(forward.m, backward.m), total.m)};
}

inline TwoFloat LogOf(ArcPosterior posterior) {
  return metal::fabs(posterior.r.high) < INFINITY
             ? Add(posterior.r, Log(posterior.m))
             : posterior.r;
}

// The posterior itself.
inline float ValueOf(ArcPosterior posterior) {
  // With a larger exponent the posterior is 0 or infinite, whatever m is.
  const float kMostExponent = 200.0f;
  if (!(metal::fabs(posterior.r.high) < kMostExponent))
    return metal::precise::exp(posterior.r.high);
  int exponent;
  // The power of 2 comes last, lest a small exponential underflow before a
  // large m multiplies it.
  const TwoFloat scaled = Exp(posterior.r, exponent);
  return metal::ldexp(Mul(scaled, posterior.m).high, exponent);
}

#endif  // K2_CSRC_MPS_KERNELS_TWO_FLOAT_H_
