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

#include "k2/csrc/mps/kernels/mutual_information.h"

// The recursion of MutualInformationCpu() and its derivative.
//
// One threadgroup does one sequence.  The cells of an anti-diagonal depend
// only on the two before it, so the threads share the cells of one diagonal,
// row by row, and meet at a barrier after each.  All that one thread hands to
// another goes through the output in device memory.
//
// Each cell is computed by one thread, by the expressions of the CPU and from
// operands in the same order: two runs give the same bits, and infinities and
// NaN go where they go there.

using namespace metal;

// log(FLT_EPSILON): what is smaller than this, exp()ed, does not change 1.
constant float kMinLogDiff = -15.942385152878742f;

// log(1 + u) for 0 <= u <= 1, which metal_stdlib lacks.  1 + u is rounded to
// w; log(w) * u / (w - 1) makes up for the rounding (W. Kahan, see Higham,
// Accuracy and Stability of Numerical Algorithms, section 1.14.1).
inline float Log1p(float u) {
  float w = 1.0f + u;
  return w == 1.0f ? u : precise::log(w) * (u / (w - 1.0f));
}

// As LogAdd in k2/csrc/utils.h, also in what it makes of NaN and infinities.
inline float LogAdd(float x, float y) {
  float larger = x < y ? y : x, diff = x < y ? x - y : y - x;
  return diff >= kMinLogDiff ? larger + Log1p(precise::exp(diff)) : larger;
}

// The part of a sequence to process: rows s_begin..s_end and columns
// t_begin..t_end of p, both ends included.
struct Boundary {
  int s_begin, t_begin, s_end, t_end;
};

inline Boundary GetBoundary(constant MutualInformationParams &params,
                            device const long *boundary, uint b) {
  Boundary ans = {0, 0, params.S, params.T};
  if (params.has_boundary) {
    ans.s_begin = int(boundary[4 * b]);
    ans.t_begin = int(boundary[4 * b + 1]);
    ans.s_end = int(boundary[4 * b + 2]);
    ans.t_end = int(boundary[4 * b + 3]);
  }
  return ans;
}

// px        [B][S][T + 1 + t_offset]
// py        [B][S + 1][T]
// boundary  [B][4]: s_begin, t_begin, s_end, t_end; not read if
//           !params.has_boundary
// p         [B][S + 1][T + 1], written inside of the boundary
// ans       [B], p[b][s_end][t_end]
kernel void mutual_information_forward(
    device const float *px [[buffer(0)]], device const float *py [[buffer(1)]],
    device const long *boundary [[buffer(2)]], device float *p [[buffer(3)]],
    device float *ans [[buffer(4)]],
    constant MutualInformationParams &params [[buffer(5)]],
    uint b [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  const int S = params.S, T = params.T, t_offset = params.t_offset;
  const int px_stride = T + 1 + t_offset, py_stride = T, p_stride = T + 1;
  px += ulong(b) * ulong(S) * ulong(px_stride);
  py += ulong(b) * ulong(S + 1) * ulong(py_stride);
  p += ulong(b) * ulong(S + 1) * ulong(p_stride);

  const Boundary range = GetBoundary(params, boundary, b);
  const int num_rows = range.s_end - range.s_begin + 1,
            num_cols = range.t_end - range.t_begin + 1;

  for (int diagonal = 0; diagonal < num_rows + num_cols - 1; ++diagonal) {
    const int first_row = max(0, diagonal - num_cols + 1),
              last_row = min(diagonal, num_rows - 1);
    for (int row = first_row + int(thread_index); row <= last_row;
         row += int(num_threads)) {
      const int s = range.s_begin + row, t = range.t_begin + diagonal - row;
      float value;
      if (s == range.s_begin && t == range.t_begin) {
        value = 0.0f;
      } else if (t == range.t_begin) {
        value = t_offset != 0
                    ? -INFINITY
                    : p[(s - 1) * p_stride + t] + px[(s - 1) * px_stride + t];
      } else if (s == range.s_begin) {
        value = p[s * p_stride + t - 1] + py[s * py_stride + t - 1];
      } else {
        value = LogAdd(p[(s - 1) * p_stride + t + t_offset] +
                           px[(s - 1) * px_stride + t + t_offset],
                       p[s * p_stride + t - 1] + py[s * py_stride + t - 1]);
      }
      p[s * p_stride + t] = value;
      if (s == range.s_end && t == range.t_end) ans[b] = value;
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
}

// px, py, boundary, p   as above, p as the forward kernel left it
// ans_grad              [B], the gradient of ans
// px_grad, py_grad      of the shapes of px and py, written inside of the
//                       boundary
//
// The gradient of p[s][t] is what its two successors have written as the
// gradients of px[s][t] and py[s][t], plus ans_grad at the end.
kernel void mutual_information_backward(
    device const float *px [[buffer(0)]],
    device const long *boundary [[buffer(1)]],
    device const float *p [[buffer(2)]],
    device const float *ans_grad [[buffer(3)]],
    device float *px_grad [[buffer(4)]], device float *py_grad [[buffer(5)]],
    constant MutualInformationParams &params [[buffer(6)]],
    uint b [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  const int S = params.S, T = params.T, t_offset = params.t_offset;
  const int px_stride = T + 1 + t_offset, py_stride = T, p_stride = T + 1;
  px += ulong(b) * ulong(S) * ulong(px_stride);
  px_grad += ulong(b) * ulong(S) * ulong(px_stride);
  py_grad += ulong(b) * ulong(S + 1) * ulong(py_stride);
  p += ulong(b) * ulong(S + 1) * ulong(p_stride);

  const Boundary range = GetBoundary(params, boundary, b);
  const int num_rows = range.s_end - range.s_begin + 1,
            num_cols = range.t_end - range.t_begin + 1;

  for (int diagonal = num_rows + num_cols - 2; diagonal >= 0; --diagonal) {
    const int first_row = max(0, diagonal - num_cols + 1),
              last_row = min(diagonal, num_rows - 1);
    for (int row = first_row + int(thread_index); row <= last_row;
         row += int(num_threads)) {
      const int s = range.s_begin + row, t = range.t_begin + diagonal - row;

      float grad = 0.0f;
      if (s == range.s_end && t == range.t_end) grad = ans_grad[b];
      if (s < range.s_end && t - t_offset <= range.t_end)
        grad += px_grad[s * px_stride + t];
      if (t < range.t_end) grad += py_grad[s * py_stride + t];

      if (t == range.t_begin) {
        // In the modified case p is -infinity here, and has no predecessor.
        if (s > range.s_begin && t_offset == 0)
          px_grad[(s - 1) * px_stride + t] = grad;
      } else if (s == range.s_begin) {
        py_grad[s * py_stride + t - 1] = grad;
      } else {
        const float term1 = p[(s - 1) * p_stride + t + t_offset] +
                            px[(s - 1) * px_stride + t + t_offset];
        float total = p[s * p_stride + t];
        if (total - total != 0.0f) total = 0.0f;
        const float term1_deriv = precise::exp(term1 - total),
                    term2_deriv = 1.0f - term1_deriv;
        // Not so if the total is -infinity.
        const bool finite = term1_deriv - term1_deriv == 0.0f;
        px_grad[(s - 1) * px_stride + t + t_offset] =
            finite ? term1_deriv * grad : 0.0f;
        py_grad[s * py_stride + t - 1] = finite ? term2_deriv * grad : 0.0f;
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
}
