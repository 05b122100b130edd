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

// For kernels only: Metal has no double precision, so pairs of floats give
// nearly double precision.
//
// A pair of floats represents the sum of the two floats.  The smaller float is
// at most half a unit in the last place of the larger float, so the pair has 48
// bits.  TwoSum() and QuickTwoSum() add floats without an error (D. E. Knuth,
// The Art of Computer Programming, volume 2, section 4.2.2; T. J. Dekker, A
// floating-point technique for extending the available precision, 1971).  The
// operations on pairs are in M. Joldes, J.-M. Muller, V. Popescu, Tight and
// rigorous error bounds for basic building blocks of double-word arithmetic,
// 2017.
//
// Results are correct only under the rules of IEEE 754, so the library is
// compiled without fast math.  Contraction, which fuses a product and a sum
// into an fma(), would not change the results, because no rounded product is an
// operand of a sum.  Each product is part of an fma(), is exact, or is the
// argument of a function.
//
// Relative errors, for all operands that do not overflow or underflow:
//   TwoSum, QuickTwoSum            none
//   Add                            3 * 2^-48, also for operands of unlike signs
//   AddSameSign                    3 * 2^-48
//   Mul, Div                       2^-46, 2^-45
//   ReduceExp, Expm1               2^-46 + |x| * 2^-52
//   Log                            2^-44, also for numbers near 1
// The paper of Joldes et al. proves the bounds of the sums.  The other bounds
// are measured: for each function, the errors for more than a million numbers
// are below the bound.  The tests check the bounds.

#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct TwoFloat {
  float high, low;  // the number is high + low, and its nearest float is `high`
};

// Returns the exact sum of any two floats.
inline TwoFloat TwoSum(float a, float b) {
  const float sum = a + b, b_of_sum = sum - a;
  return TwoFloat{sum, (a - (sum - b_of_sum)) + (b - b_of_sum)};
}

// Returns the exact sum of two floats.  |a| >= |b| or a == 0 must hold.
inline TwoFloat QuickTwoSum(float a, float b) {
  const float sum = a + b;
  return TwoFloat{sum, b - (sum - a)};
}

inline TwoFloat Add(TwoFloat a, TwoFloat b) {
  const TwoFloat high = TwoSum(a.high, b.high), low = TwoSum(a.low, b.low),
                 sum = QuickTwoSum(high.high, high.low + low.high);
  return QuickTwoSum(sum.high, sum.low + low.low);
}

// If a.high + b is infinite or NaN, returns this sum.  In this case the Add()
// of two pairs returns NaN.
inline TwoFloat Add(TwoFloat a, float b) {
  const TwoFloat sum = TwoSum(a.high, b);
  if (!(metal::fabs(sum.high) < INFINITY)) return TwoFloat{sum.high, 0.0f};
  return QuickTwoSum(sum.high, sum.low + a.low);
}

// Returns a + b for operands of the same sign.
inline TwoFloat AddSameSign(TwoFloat a, TwoFloat b) {
  const TwoFloat sum = TwoSum(a.high, b.high);
  return QuickTwoSum(sum.high, sum.low + (a.low + b.low));
}

// Returns a + b for |b| < |a| / 2.
inline TwoFloat AddSmaller(TwoFloat a, TwoFloat b) {
  const TwoFloat sum = QuickTwoSum(a.high, b.high);
  return QuickTwoSum(sum.high, sum.low + (a.low + b.low));
}

inline TwoFloat Negative(TwoFloat a) { return TwoFloat{-a.high, -a.low}; }

// Returns a * b.  The first fma() adds the small terms, and the second one
// rounds the whole product once.  So no rounded product is an operand of a sum.
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

// Returns 2^exponent for -126 <= exponent <= 127.
inline float PowerOf2(int exponent) {
  return as_type<float>((exponent + 127) << 23);
}

// Returns a * 2^exponent for |exponent| <= 252; faster than metal::ldexp().
inline TwoFloat Ldexp(TwoFloat a, int exponent) {
  const int part = exponent >> 1;
  const float first = PowerOf2(part), second = PowerOf2(exponent - part);
  return TwoFloat{a.high * first * second, a.low * first * second};
}

inline bool IsLess(TwoFloat a, TwoFloat b) {
  return a.high < b.high || (a.high == b.high && a.low < b.low);
}

constant TwoFloat kLog2 = {0.693147182f, -1.90465421e-9f};

// Element i is 2^(i / 16).
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

// exp(x) = 2^(n / 16) * (1 + expm1), where n is an integer.
struct ReducedExp {
  float n;
  TwoFloat expm1;
};

// Splits exp(x), see ReducedExp.  If |x| is below 7e5, n is exact.  If |x| is
// larger, n is approximate, and |expm1| is below 0.2.  If x is infinite or NaN,
// n is x.
inline ReducedExp ReduceExp(float x) {
  // log(2) / 16 in two parts.
  const float kPart1 = 0.0433216989f, kPart2 = -1.19040888e-10f;
  // 16 / log(2) has two parts, so that n is exact for large x, too.
  const float n = metal::rint(metal::fma(x, 23.0831203f, x * 3.08154079e-7f));
  // The fma() has no rounding error: x - n * kPart1 is small, and is a multiple
  // of 2^-29 if n is not 0.
  const float kMost = 0.07f,
              near = metal::clamp(metal::fma(-n, kPart1, x), -kMost, kMost),
              rest = metal::clamp(metal::fma(-n, kPart2, 0.0f), -kMost, kMost);
  const TwoFloat y = TwoSum(near, rest);

  // Adds up y + y^2 / 2 + y^3 / 6 + ..., with pairs for the first terms.
  const float series =
      metal::fma(metal::fma(metal::fma(1.98412701e-4f, y.high, 1.38888892e-3f),
                            y.high, 8.33333377e-3f),
                 y.high, 4.16666679e-2f);
  TwoFloat cubes =
      QuickTwoSum(0.166666672f, metal::fma(y.high, series, -4.96705388e-9f));
  cubes = Mul(y, cubes);
  TwoFloat squares = QuickTwoSum(0.5f, cubes.high);
  squares = Mul(y, QuickTwoSum(squares.high, squares.low + cubes.low));
  return ReducedExp{n, AddSmaller(y, Mul(y, squares))};
}

// Returns exp(x) - 1 for |x| <= 1; the result is accurate near 0, too.
inline TwoFloat Expm1(float x) {
  const ReducedExp reduced = ReduceExp(x);
  const int n = static_cast<int>(reduced.n);
  const TwoFloat power = Ldexp(kPowersOf2[n & 15], n >> 4);
  return Add(QuickTwoSum(power.high - 1.0f, power.low),
             Mul(power, reduced.expm1));
}

// Returns log(x) for finite x > 0 that is not a subnormal number.
inline TwoFloat Log(TwoFloat x) {
  // Writes x as (1 + y) * 2^exponent, with 1 + y between 0.7 and 1.42.
  int exponent;
  metal::frexp(x.high * 1.41421354f, exponent);
  --exponent;
  const TwoFloat scaled = Ldexp(x, -exponent),
                 y = QuickTwoSum(scaled.high - 1.0f, scaled.low);
  // One step of Newton's method, with a float as the start:
  // z = (1 + y) * exp(-start) - 1.
  const float start = metal::fabs(y.high) < 1e-3f
                          ? metal::fma(-0.5f * y.high, y.high, y.high)
                          : metal::precise::log(1.0f + y.high);
  const TwoFloat expm1 = Expm1(-start), z = Add(Add(y, expm1), Mul(y, expm1)),
                 sum = QuickTwoSum(start, z.high);
  const TwoFloat log1p = QuickTwoSum(
      sum.high, sum.low + metal::fma(-0.5f * z.high, z.high, z.low));
  const TwoFloat exponents = {static_cast<float>(exponent), 0.0f};
  return Add(Mul(exponents, kLog2), log1p);
}

#endif  // K2_CSRC_MPS_KERNELS_TWO_FLOAT_H_
