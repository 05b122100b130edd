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

#ifndef K2_CSRC_MPS_KERNELS_PRUNED_BEAM_H_
#define K2_CSRC_MPS_KERNELS_PRUNED_BEAM_H_

#include "k2/csrc/mps/kernels/pruned.h"

// For kernels only: the beam of a frame.  The host computes the beam with
// doubles, which Metal does not have.  These functions compute the same values
// with integers, and round as IEEE 754 does.

// Ordered() maps floats to signed integers that have the same order, as
// FloatToOrderedInt() of k2/csrc/utils.h does.  Unordered() is the inverse of
// Ordered().
inline int Ordered(float x) {
  const int bits = as_type<int>(x);
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}
inline float Unordered(int x) {
  return as_type<float>(x >= 0 ? x : x ^ 0x7fffffff);
}
constant int kOrderedMinusInfinity = static_cast<int>(0x807fffffu);

// A positive double: significand * 2^exponent.  The significand has 53 bits.
struct Double {
  ulong significand;
  int exponent;
};

// Returns y / 2^shift, rounded to the nearest integer.  If two integers are
// equally near, returns the even one.  0 < shift < 64.  The integer x is y
// without its fraction, and is_more says whether y has a fraction.
inline ulong Rounded(ulong x, int shift, bool is_more) {
  const ulong whole = x >> shift, rest = x & ((1ul << shift) - 1ul),
              half_way = 1ul << (shift - 1);
  const bool up =
      rest > half_way || (rest == half_way && (is_more || (whole & 1ul) != 0));
  return whole + (up ? 1ul : 0ul);
}

// Returns the double significand * 2^exponent.  Rounding may have made the
// significand 2^53.  This number has 54 bits, one too many, so it is halved.
inline Double Normal(ulong significand, int exponent) {
  if ((significand >> 53) == 0) return Double{significand, exponent};
  return Double{significand >> 1, exponent + 1};
}

// Returns (0x1999999999999a * 2^exponent) * x for a positive normal number x.
// This is 0.8 * x if exponent is -53, and 0.2 * x if exponent is -55.
inline Double Times(float x, int exponent) {
  const ulong kFactor = 0x1999999999999aul;
  const int kLowBits = 29;
  const uint bits = as_type<uint>(x);
  const ulong of_x = (bits & 0x7fffffu) | 0x800000u,
              high = of_x * (kFactor >> kLowBits),
              low = of_x * (kFactor & ((1ul << kLowBits) - 1ul));
  // The product, high * 2^29 + low, has 76 or 77 bits.
  const ulong top = high + (low >> kLowBits);
  const int shift = (top >> 47) != 0 ? 24 : 23;
  const ulong whole = (high << (kLowBits - shift)) + (low >> shift),
              rest = low & ((1ul << shift) - 1ul);
  const ulong rounded = Rounded((whole << 1) | (rest >> (shift - 1)), 1,
                                (rest & ((1ul << (shift - 1)) - 1ul)) != 0);
  return Normal(rounded,
                static_cast<int>(bits >> 23) - 127 - 23 + exponent + shift);
}

// Returns the sum of two doubles.
inline Double Plus(Double a, Double b) {
  if (a.exponent < b.exponent) {
    const Double swapped = a;
    a = b;
    b = swapped;
  }
  const int kGuard = 10, distance = a.exponent - b.exponent;
  const ulong wide = b.significand << kGuard;
  const bool is_far = distance > 63;
  const ulong shifted = is_far ? 0ul : wide >> distance;
  const bool is_more = is_far || (shifted << distance) != wide;
  const ulong sum = (a.significand << kGuard) + shifted;
  const int shift = (sum >> 63) != 0 ? kGuard + 1 : kGuard;
  return Normal(Rounded(sum, shift, is_more), a.exponent + shift - kGuard);
}

// Returns the nearest float.  The double must be in the range of normal floats.
inline float ToFloat(Double a) {
  ulong significand = Rounded(a.significand, 29, false);
  int exponent = a.exponent + 29;
  if ((significand >> 24) != 0) {
    significand >>= 1;
    exponent += 1;
  }
  return as_type<float>((uint(exponent + 23 + 127) << 23) |
                        (uint(significand) & 0x7fffffu));
}

// Returns the beam of a frame, as GetPruningCutoffs() of
// intersect_dense_pruned.cu computes it.
//
// beam         the beam of the previous frame
// num_active   the number of the frame's active states
// t            the frame; the last frame of the sequence is num_rows - 1
inline float NextBeam(float beam, int num_active, int t, int num_rows,
                      constant PrunedParams &params) {
  const float all = params.search_beam;
  const bool near_end = t + 5 >= num_rows;
  // The host converts these numbers to float, too.
  const float most = static_cast<float>(params.max_active);
  const float least = near_end
                          ? max(static_cast<float>(params.min_active), most / 2)
                          : params.min_active;
  if (num_active <= most) {
    if (num_active >= least || num_active == 0) {
      if (beam < INFINITY)
        beam = ToFloat(Plus(Times(beam, -53), Times(all, -55)));
    } else {
      beam = max(beam, all) * 1.25f;
    }
  } else if (!near_end) {
    beam = ToFloat(Times(min(beam, all), -53));  // NOLINT
  }
  return t == num_rows - 1 ? 1e10f : beam;
}

#endif  // K2_CSRC_MPS_KERNELS_PRUNED_BEAM_H_
