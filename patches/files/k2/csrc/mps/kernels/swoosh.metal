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

#include "k2/csrc/mps/kernels/philox.h"
#include "k2/csrc/mps/kernels/swoosh.h"

// swoosh(x) = log(1 + exp(x - shift)) - 0.08 x - offset, its derivative
//
//   swoosh'(x) = 1 / (1 + exp(shift - x)) - 0.08
//
// and its gradient.  Both functions have zeros, near which their terms cancel.
// So they are evaluated by Taylor's formula around the nodes of a table, which
// the host makes in double precision.  The zeros are nodes, so results are
// within 2 units in the last place.
//
// Each lane of a simdgroup holds a cell of the table, from which other lanes
// take it by simd_shuffle(): loads at indexes that differ from lane to lane
// would take three times as long as the rest.  So all lanes do all steps.
//
// Each thread has kSwooshOfThread consecutive elements of memory.

using namespace metal;

// swoosh'(x) + 0.08, at most 1, in steps of kStep for 8 bits, as in k2's loop
// for the CPU.
constant float kStep = 1.005f / 255.0f;
constant float kCoeff = 0.08f;

template <typename T>
float4 Load(device const T *from, long first, long size, bool is_aligned) {
  if (is_aligned && first + 4 <= size)
    return float4(*reinterpret_cast<device const vec<T, 4> *>(from + first));
  float4 ans = 0.0f;
  for (int i = 0; i != 4 && first + i < size; ++i)
    ans[i] = static_cast<float>(from[first + i]);
  return ans;
}

// The outputs begin at a multiple of 16 bytes.
template <typename T>
void Store(vec<T, 4> values, device T *to, long first, long size) {
  if (first + 4 <= size) {
    *reinterpret_cast<device vec<T, 4> *>(to + first) = values;
    return;
  }
  for (int i = 0; i != 4 && first + i < size; ++i) to[first + i] = values[i];
}

// Where x is in a table: the distance from a node, and the node's cell.
struct Place {
  bool is_inside;  // false for NaN
  ushort cell;     // 0 if x is outside
  float d;
};

inline Place Find(constant SwooshTable &table, float x) {
  const float from_base = rint((x - table.base) * table.cells_per_unit),
              cell = from_base + table.before;
  Place ans;
  ans.is_inside = cell >= 0.0f && cell < float(kSwooshCells);
  ans.cell = ans.is_inside ? ushort(cell) : ushort(0);
  // As the host computes the node.
  ans.d = x - fma(from_base, table.step, table.base);
  return ans;
}

// Derivatives of the sigmoid s, divided by factorials: terms[k] is that of
// order k + 1 by (k + 1)!.  With p = s (1 - s) and q = 1 - 2 s, the derivative
// of p is p q, and that of q is -2 p.
struct SigmoidTerms {
  float terms[5];

  explicit SigmoidTerms(float s) {
    const float p = fma(-s, s, s), q = fma(-2.0f, s, 1.0f), pq = p * q;
    terms[0] = p;
    terms[1] = pq * 0.5f;
    terms[2] = p * fma(p, -1.0f, 1.0f / 6.0f);
    terms[3] = pq * fma(p, -0.5f, 1.0f / 24.0f);
    terms[4] = p * fma(p, p - 0.25f, 1.0f / 120.0f);
  }

  // The next term; only the derivative of swoosh needs it.
  static float Sixth(float s) {
    const float p = fma(-s, s, s), q = fma(-2.0f, s, 1.0f);
    return p * q * fma(p, fma(p, 0.5f, -1.0f / 12.0f), 1.0f / 720.0f);
  }
};

// The part of log(1 + exp(z)) beyond max(z, 0), for a large |z|.
inline float Softplus(float z) {
  const float e = exp(-fabs(z));
  return fma(e * -0.5f, e, e);
}

struct ValueAndSlope {
  float value, slope;
};

// Returns swoosh(x), and its derivative as the slope.  The latter is within
// 1e-5: enough for the steps of 8 bits.  `cell` is that of this lane.
inline ValueAndSlope Swoosh(constant SwooshTable &table, SwooshCell cell,
                            constant SwooshParams &params, float x) {
  const Place place = Find(table, x);
  const float value = simd_shuffle(cell.value, place.cell),
              value_low = simd_shuffle(cell.value_low, place.cell),
              slope = simd_shuffle(cell.slope, place.cell), d = place.d;
  ValueAndSlope ans;
  if (place.is_inside) {
    const SigmoidTerms sigmoid(slope + kCoeff);
    // The integral of the sigmoid: terms[k] goes with d^(k + 2) / (k + 2).
    float sum = sigmoid.terms[4] * (1.0f / 6.0f);
    sum = fma(sum, d, sigmoid.terms[3] * 0.2f);
    sum = fma(sum, d, sigmoid.terms[2] * 0.25f);
    sum = fma(sum, d, sigmoid.terms[1] * (1.0f / 3.0f));
    sum = fma(sum, d, sigmoid.terms[0] * 0.5f);
    // The largest terms come last.
    ans.value = value + fma(d, slope, fma(d, d * sum, value_low));
    float rise = fma(sigmoid.terms[3], d, sigmoid.terms[2]);
    rise = fma(fma(rise, d, sigmoid.terms[1]), d, sigmoid.terms[0]);
    ans.slope = fma(rise, d, slope);
  } else {
    const float z = x - params.shift, rest = Softplus(z);
    const bool is_right = z > 0.0f;
    const SwooshTail tail = is_right ? params.right : params.left;
    ans.value = fma(tail.slope, x, tail.intercept) +
                fma(tail.slope_low, x, tail.intercept_low + rest);
    ans.slope = tail.slope + (is_right ? -rest : rest);
    // As in the formula, where the terms of infinity are of different signs.
    if (is_right) ans.value += x - x;
  }
  return ans;
}

// Returns swoosh'(x).  Of the table it uses the slopes alone.
inline float Deriv(constant SwooshTable &table, SwooshCell cell,
                   constant SwooshParams &params, float x) {
  const Place place = Find(table, x);
  const float slope = simd_shuffle(cell.slope, place.cell),
              slope_low = simd_shuffle(cell.slope_low, place.cell), d = place.d;
  if (place.is_inside) {
    const SigmoidTerms sigmoid(slope + kCoeff);
    float sum = SigmoidTerms::Sixth(slope + kCoeff);
    sum = fma(fma(sum, d, sigmoid.terms[4]), d, sigmoid.terms[3]);
    sum = fma(fma(sum, d, sigmoid.terms[2]), d, sigmoid.terms[1]);
    return slope + fma(d, sigmoid.terms[0], fma(d, d * sum, slope_low));
  }
  const float z = x - params.shift, e = exp(-fabs(z)), rest = fma(-e, e, e);
  return z > 0.0f ? params.right.slope - rest : params.left.slope + rest;
}

// x         of float, half or bfloat
// y         of the same size, gets swoosh(x)
// table     of swoosh
template <typename T>
kernel void swoosh(device const T *x [[buffer(0)]],
                   device float *y [[buffer(1)]],
                   constant SwooshParams &params [[buffer(2)]],
                   constant SwooshTable &table [[buffer(3)]],
                   uint lane [[thread_index_in_simdgroup]],
                   uint thread_index [[thread_position_in_grid]]) {
  const long first = long(thread_index) * kSwooshOfThread;
  const float4 from = Load(x, first, params.size, params.is_aligned);
  const SwooshCell cell = table.cells[lane];
  float4 values;
  for (int i = 0; i != kSwooshOfThread; ++i)
    values[i] = Swoosh(table, cell, params, from[i]).value;
  Store(values, y, first, params.size);
}

// deriv         gets swoosh'(x)
// deriv_table   of swoosh'
template <typename T>
kernel void swoosh_and_deriv(device const T *x [[buffer(0)]],
                             device float *y [[buffer(1)]],
                             device float *deriv [[buffer(2)]],
                             constant SwooshParams &params [[buffer(3)]],
                             constant SwooshTable &table [[buffer(4)]],
                             constant SwooshTable &deriv_table [[buffer(5)]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint thread_index [[thread_position_in_grid]]) {
  const long first = long(thread_index) * kSwooshOfThread;
  const float4 from = Load(x, first, params.size, params.is_aligned);
  const SwooshCell cell = table.cells[lane],
                   deriv_cell = deriv_table.cells[lane];
  float4 values, derivs;
  for (int i = 0; i != kSwooshOfThread; ++i) {
    values[i] = Swoosh(table, cell, params, from[i]).value;
    derivs[i] = Deriv(deriv_table, deriv_cell, params, from[i]);
  }
  Store(values, y, first, params.size);
  Store(derivs, deriv, first, params.size);
}

// y   gets swoosh(x) with dropout: 0 with dropout_prob, else kept_scale times
//     the value
// g   gets the derivative without dropout's scale: the integer part of
//     (swoosh'(x) + 0.08) / kStep plus a random number of [0, 1), or where y is
//     dropped, of 0.08 / kStep plus that number
template <typename T>
kernel void swoosh_forward(device const T *x [[buffer(0)]],
                           device float *y [[buffer(1)]],
                           device uchar *g [[buffer(2)]],
                           constant SwooshParams &params [[buffer(3)]],
                           constant SwooshTable &table [[buffer(4)]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint thread_index [[thread_position_in_grid]]) {
  const long first = long(thread_index) * kSwooshOfThread;
  const float4 from = Load(x, first, params.size, params.is_aligned);
  const uint2 seed(params.seed[0], params.seed[1]);
  const float4 rounding = Uniform(Philox(uint4(thread_index, 0, 0, 0), seed));
  const SwooshCell cell = table.cells[lane];
  float4 values, steps;
  for (int i = 0; i != kSwooshOfThread; ++i) {
    const ValueAndSlope at = Swoosh(table, cell, params, from[i]);
    values[i] = at.value;
    steps[i] = at.slope + kCoeff;
  }
  if (params.dropout_prob != 0.0f) {
    const bool4 is_dropped = Uniform(Philox(uint4(thread_index, 1, 0, 0),
                                            seed)) < params.dropout_prob;
    values = select(values * params.kept_scale, float4(0.0f), is_dropped);
    steps = select(steps, float4(kCoeff), is_dropped);
  }
  // Rounding may make a derivative a little less than 0.  max() takes NaN to 0.
  steps = max(steps * (1.0f / kStep), 0.0f) + rounding;
  Store(values, y, first, params.size);
  Store(uchar4(steps), g, first, params.size);
}

// y_grad   the gradient of y, of float
// g        what swoosh_forward() wrote
// x_grad   gets the gradient of x, of float, half or bfloat
template <typename T>
kernel void swoosh_backward(device const float *y_grad [[buffer(0)]],
                            device const uchar *g [[buffer(1)]],
                            device T *x_grad [[buffer(2)]],
                            constant SwooshGradParams &params [[buffer(3)]],
                            uint lane [[thread_index_in_simdgroup]],
                            uint thread_index [[thread_position_in_grid]]) {
  const long first = long(thread_index) * kSwooshOfThread;
  const float4 steps = Load(g, first, params.size, true),
               grads = Load(y_grad, first, params.size, params.is_aligned);
  const float4 ans = grads * (steps * params.scale - params.offset);
  vec<T, 4> rounded;
  for (int i = 0; i != kSwooshOfThread; ++i)
    rounded[i] = static_cast<T>(ans[i]);
  Store(rounded, x_grad, first, params.size);
}

#define K2_INSTANCE(name, kernel_name, Type) \
  template [[host_name(name)]] [[kernel]]    \
  decltype(kernel_name<Type>) kernel_name<Type>;
#define K2_INSTANCES(kernel_name)                      \
  K2_INSTANCE(#kernel_name, kernel_name, float)        \
  K2_INSTANCE(#kernel_name "_half", kernel_name, half) \
  K2_INSTANCE(#kernel_name "_bfloat", kernel_name, bfloat)

K2_INSTANCES(swoosh)
K2_INSTANCES(swoosh_and_deriv)
K2_INSTANCES(swoosh_forward)
K2_INSTANCES(swoosh_backward)
