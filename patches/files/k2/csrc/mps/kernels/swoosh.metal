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
// and the gradient of x.  Both functions have zeros.  Near a zero, the terms of
// the formula cancel.  So the kernels use Taylor's formula around the nodes of
// a table, which the host computes in double precision.  The zeros are nodes,
// so results are within 2 units in the last place.
//
// Each lane of a simdgroup holds a cell of the table.  The other lanes get the
// cell with simd_shuffle(), because loads at indexes that differ from lane to
// lane take three times as long as the rest of the kernel.  So all lanes of a
// simdgroup must do all steps.
//
// A chunk is kSwooshOfChunk consecutive elements of memory.  A thread has
// kSwooshChunks chunks.  The chunks that the threads of a threadgroup load at
// the same time are neighbors.

using namespace metal;

// swoosh'(x) + kCoeff is at most 1.  This sum is saved in 8 bits, as a number
// of steps of size kStep, as in k2's loop for the CPU.
constant constexpr float kStep = 1.005f / 255.0f;
constant constexpr float kCoeff = 0.08f;

// The code below indexes vectors only with constants.  With other indexes,
// compilers keep a vector in memory.

// Loads the first `count` elements of a chunk.  If count > 4, loads 4 elements.
template <typename T>
float4 Load(device const T *from, int count, bool is_aligned) {
  if (is_aligned && count >= 4)
    return float4(*reinterpret_cast<device const vec<T, 4> *>(from));
  float4 ans = 0.0f;
  if (count > 0) ans.x = static_cast<float>(from[0]);
  if (count > 1) ans.y = static_cast<float>(from[1]);
  if (count > 2) ans.z = static_cast<float>(from[2]);
  if (count > 3) ans.w = static_cast<float>(from[3]);
  return ans;
}

// Stores the first `count` elements of a chunk.  Outputs begin at a multiple of
// 16 bytes, so no check of the alignment is needed.
template <typename T>
void Store(vec<T, 4> values, device T *to, int count) {
  if (count >= 4) {
    *reinterpret_cast<device vec<T, 4> *>(to) = values;
    return;
  }
  if (count > 0) to[0] = values.x;
  if (count > 1) to[1] = values.y;
  if (count > 2) to[2] = values.z;
}

// The part of a table that a lane keeps.
struct LaneOfTable {
  SwooshGrid grid;
  SwooshCell cell;  // the cell with the index of this lane

  LaneOfTable(constant SwooshTable &table, uint lane)
      : grid(table.grid), cell(table.cells[lane]) {}
};

// The positions of four elements in a table.
struct Places {
  bool4 are_inside;  // whether the table has cells for them; false for NaN
  ushort4 cells;     // the indexes of the cells; 0 for elements outside
  float4 d;          // the distances from the nodes of the cells

  Places(SwooshGrid grid, float4 x) {
    const float4 at =
        rint(fma(x, float4(grid.cells_per_unit), float4(grid.first_cell)));
    are_inside = at >= 0.0f && at < float4(kSwooshCells);
    cells = ushort4(select(float4(0.0f), at, are_inside));
    // The fma() computes the nodes as the host does.
    d = x - fma(at - grid.before, float4(grid.step), float4(grid.base));
  }

  // Returns, for each element, the value of `of_lane` in the lane that holds
  // the cell of the element.
  float4 Take(float of_lane) const {
    return float4(
        simd_shuffle(of_lane, cells.x), simd_shuffle(of_lane, cells.y),
        simd_shuffle(of_lane, cells.z), simd_shuffle(of_lane, cells.w));
  }
};

// The derivatives of the sigmoid s are polynomials of p = s (1 - s) and of
// q = 1 - 2 s.  The derivative of p is p q, and the derivative of q is -2 p.
struct Sigmoid {
  float4 p, pq;  // the first and the second derivative of s

  explicit Sigmoid(float4 s)
      : p(fma(-s, s, s)), pq(p * fma(float4(-2.0f), s, float4(1.0f))) {}
};

// Returns a x + b.
inline float4 Linear(float4 a, float4 x, float b) {
  return fma(a, x, float4(b));
}

// Returns exp(-|z|) with a relative error of 2^-20.  |z| is so large that this
// error does not change the results.
inline float4 SmallExp(float4 z) { return fast::exp(-fabs(z)); }

// Returns swoosh(x).  `slopes` gets the derivatives with an error below 1e-5,
// which is small compared with kStep.
inline float4 Swoosh(LaneOfTable table, SwooshParams params, float4 x,
                     thread float4 &slopes) {
  const Places places(table.grid, x);
  const float4 value = places.Take(table.cell.value),
               value_low = places.Take(table.cell.value_low),
               slope = places.Take(table.cell.slope), d = places.d;
  // Taylor's formula up to d^6, with the derivatives of the sigmoid.
  const Sigmoid sigmoid(slope + kCoeff);
  const float4 p = sigmoid.p, pq = sigmoid.pq, third = pq * (1.0f / 6.0f),
               fourth = p * Linear(-0.25f, p, 1.0f / 24.0f);
  float4 sum =
      p * Linear(Linear(1.0f / 6.0f, p, -1.0f / 24.0f), p, 1.0f / 720.0f);
  sum = fma(sum, d, pq * Linear(-0.1f, p, 1.0f / 120.0f));
  sum = fma(fma(sum, d, fourth), d, third);
  sum = fma(sum, d, 0.5f * p);
  slopes = fma(fma(fma(4.0f * fourth, d, 3.0f * third), d, p), d, slope);
  // The largest terms are added last, because this order has the smallest
  // error.
  const float4 values = value + fma(d, slope, fma(d, d * sum, value_low));
  if (all(places.are_inside)) return values;

  // log(1 + exp(z)) is max(z, 0) + rest.
  const float4 z = x - params.shift, e = SmallExp(z),
               rest = fma(-0.5f * e, e, e);
  const SwooshTail left = params.left, right = params.right;
  const bool4 are_right = z > 0.0f;
  const float4 of_left =
                   Linear(left.slope, x, left.intercept) +
                   fma(float4(left.slope_low), x, left.intercept_low + rest),
               // For x = infinity, the result is NaN, as in the formula.
      of_right = (x - x) + Linear(right.slope, x, right.intercept) +
                 fma(float4(right.slope_low), x, right.intercept_low + rest);
  slopes = select(select(left.slope + rest, right.slope - rest, are_right),
                  slopes, places.are_inside);
  return select(select(of_left, of_right, are_right), values,
                places.are_inside);
}

// Returns swoosh'(x).  Uses only the slopes of the table.
inline float4 Deriv(LaneOfTable table, SwooshParams params, float4 x) {
  const Places places(table.grid, x);
  const float4 slope = places.Take(table.cell.slope),
               slope_low = places.Take(table.cell.slope_low), d = places.d;
  // Taylor's formula up to d^6, as in Swoosh().
  const Sigmoid sigmoid(slope + kCoeff);
  const float4 p = sigmoid.p, pq = sigmoid.pq;
  float4 sum = pq * Linear(Linear(0.5f, p, -1.0f / 12.0f), p, 1.0f / 720.0f);
  sum = fma(sum, d, p * Linear(p - 0.25f, p, 1.0f / 120.0f));
  sum = fma(sum, d, pq * Linear(-0.5f, p, 1.0f / 24.0f));
  sum = fma(sum, d, p * (1.0f / 6.0f - p));
  sum = fma(sum, d, pq * 0.5f);
  const float4 derivs = slope + fma(d, p, fma(d, d * sum, slope_low));
  if (all(places.are_inside)) return derivs;

  const float4 z = x - params.shift, e = SmallExp(z), rest = fma(-e, e, e);
  return select(
      select(params.left.slope + rest, params.right.slope - rest, z > 0.0f),
      derivs, places.are_inside);
}

// The chunks of a thread.
struct Chunks {
  long size;  // the number of elements
  uint first, stride;

  Chunks(long size, uint group, uint thread_index, uint num_threads)
      : size(size),
        first(group * kSwooshChunks * num_threads + thread_index),
        stride(num_threads) {}

  // Returns the index of chunk k of the thread among all chunks.
  uint operator[](int k) const { return first + uint(k) * stride; }

  // Returns the index of the first element of chunk k.
  long Begin(int k) const { return long((*this)[k]) * kSwooshOfChunk; }

  // Returns how many elements chunk k has, at most kSwooshOfChunk.  If the
  // result is 0 or negative, the chunk has no elements.
  int Count(int k) const {
    return int(min(size - Begin(k), long(kSwooshOfChunk)));
  }
};

// x         of float, half or bfloat
// y         of the same size, gets swoosh(x)
// table     the table of swoosh
template <typename T>
kernel void swoosh(device const T *x [[buffer(kSwooshX)]],
                   device float *y [[buffer(kSwooshY)]],
                   constant SwooshParams &params [[buffer(kSwooshParams)]],
                   constant SwooshTable &table [[buffer(kSwooshTable)]],
                   uint lane [[thread_index_in_simdgroup]],
                   uint group [[threadgroup_position_in_grid]],
                   uint thread_index [[thread_index_in_threadgroup]],
                   uint num_threads [[threads_per_threadgroup]]) {
  const LaneOfTable values(table, lane);
  const SwooshParams p = params;
  const Chunks chunks(params.size, group, thread_index, num_threads);
  for (int k = 0; k != kSwooshChunks; ++k) {
    const long at = chunks.Begin(k);
    const int count = chunks.Count(k);
    float4 slopes;
    Store(Swoosh(values, p, Load(x + at, count, p.is_aligned), slopes), y + at,
          count);
  }
}

// deriv         gets swoosh'(x)
// deriv_table   the table of swoosh'
template <typename T>
kernel void swoosh_and_deriv(device const T *x [[buffer(kSwooshX)]],
                             device float *y [[buffer(kSwooshY)]],
                             device float *deriv [[buffer(kSwooshDeriv)]],
                             constant SwooshParams &params
                             [[buffer(kSwooshParams)]],
                             constant SwooshTable &table
                             [[buffer(kSwooshTable)]],
                             constant SwooshTable &deriv_table
                             [[buffer(kSwooshDerivTable)]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint group [[threadgroup_position_in_grid]],
                             uint thread_index [[thread_index_in_threadgroup]],
                             uint num_threads [[threads_per_threadgroup]]) {
  const LaneOfTable values(table, lane), derivs(deriv_table, lane);
  const SwooshParams p = params;
  const Chunks chunks(params.size, group, thread_index, num_threads);
  for (int k = 0; k != kSwooshChunks; ++k) {
    const long at = chunks.Begin(k);
    const int count = chunks.Count(k);
    const float4 from = Load(x + at, count, p.is_aligned);
    float4 slopes;
    Store(Swoosh(values, p, from, slopes), y + at, count);
    Store(Deriv(derivs, p, from), deriv + at, count);
  }
}

// y   gets swoosh(x) with dropout: 0 if the element is dropped, else swoosh(x)
//     times kept_scale
// g   gets the derivative d, which lacks the factor kept_scale, in 8 bits: the
//     integer part of (d + 0.08) / kStep + r, where r is a random number in
//     (0, 1).  d is swoosh'(x), or 0 if the element is dropped
template <typename T>
kernel void swoosh_forward(device const T *x [[buffer(kSwooshX)]],
                           device float *y [[buffer(kSwooshY)]],
                           device uchar *g [[buffer(kSwooshG)]],
                           constant SwooshParams &params
                           [[buffer(kSwooshParams)]],
                           constant SwooshTable &table [[buffer(kSwooshTable)]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint group [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]],
                           uint num_threads [[threads_per_threadgroup]]) {
  // [0, 1) is divided into equal parts of size kPart.  A random number is the
  // middle of a part.  kLeast is the smallest random number plus kCoeff /
  // kStep.
  constexpr float kPart = 1.0f / (1 << (32 - kSwooshDropoutBits));
  constexpr float kLeast = 0.5f * kPart + kCoeff / kStep;
  const LaneOfTable table_of_values(table, lane);
  const SwooshParams p = params;
  const Chunks chunks(params.size, group, thread_index, num_threads);
  for (int k = 0; k != kSwooshChunks; ++k) {
    const long at = chunks.Begin(k);
    const int count = chunks.Count(k);
    const float4 from = Load(x + at, count, p.is_aligned);
    const uint4 random =
        Philox(uint4(chunks[k], 0, 0, 0), uint2(p.seed[0], p.seed[1]));
    float4 slopes;
    float4 values = Swoosh(table_of_values, p, from, slopes);
    if (p.dropout_limit != 0) {
      const bool4 is_dropped =
          (random & ((1u << kSwooshDropoutBits) - 1)) < p.dropout_limit;
      values = select(values * p.kept_scale, float4(0.0f), is_dropped);
      slopes = select(slopes, float4(0.0f), is_dropped);
    }
    const float4 rounding =
        Linear(kPart, float4(random >> kSwooshDropoutBits), kLeast);
    // max() turns NaN into 0.
    const float4 steps = max(fma(slopes, float4(1.0f / kStep), rounding), 0.0f);
    Store(values, y + at, count);
    Store(uchar4(steps), g + at, count);
  }
}

// y_grad   the gradient of y, of float
// g        what swoosh_forward() wrote
// x_grad   gets the gradient of x, of float, half or bfloat
template <typename T>
kernel void swoosh_backward(device const float *y_grad [[buffer(kSwooshYGrad)]],
                            device const uchar *g [[buffer(kSwooshG)]],
                            device T *x_grad [[buffer(kSwooshXGrad)]],
                            constant SwooshGradParams &params
                            [[buffer(kSwooshParams)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint num_threads [[threads_per_threadgroup]]) {
  const Chunks chunks(params.size, group, thread_index, num_threads);
  for (int k = 0; k != kSwooshChunks; ++k) {
    const long at = chunks.Begin(k);
    const int count = chunks.Count(k);
    const float4 steps = Load(g + at, count, true),
                 grads = Load(y_grad + at, count, params.is_aligned);
    const float4 ans = grads * (steps * params.scale - params.offset);
    Store(vec<T, 4>(ans), x_grad + at, count);
  }
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
