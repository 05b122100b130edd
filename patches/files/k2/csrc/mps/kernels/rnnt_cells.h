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

#ifndef K2_CSRC_MPS_KERNELS_RNNT_CELLS_H_
#define K2_CSRC_MPS_KERNELS_RNNT_CELLS_H_

#include "k2/csrc/mps/kernels/rnnt_smoothed.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// For kernels only: code that the kernels of rnnt_smoothed.metal and
// rnnt_smoothed_grad.metal share.

// The row on which a thread's simdgroup works.
struct Row {
  int index, lane;
};

inline Row GetRow(uint group, uint thread_index, uint num_threads) {
  return Row{static_cast<int>(group * (num_threads / kSimdWidth) +
                              thread_index / kSimdWidth),
             static_cast<int>(thread_index % kSimdWidth)};
}

// The first rows are the frames of am, and the other rows are the positions of
// lm.
inline int NumFrames(constant RnntSmoothedParams &params) {
  return params.B * params.T;
}

inline int NumRows(constant RnntSmoothedParams &params) {
  return params.B * (params.T + params.S + 1);
}

// 1e-25 and its log.  If a sum of exponentials is below 1e-25, it is computed
// again from the logits, because terms may be missing from it.  Each term is a
// product of two exponentials, which underflows if it is below 1.2e-38.
constant float kLowSum = 1e-25f, kLogLowSum = -57.564627f;

// The log of float64's smallest normal number, which replaces smaller logs.
constant float kLogTiny = -708.39642f;

// The part of a sequence that is inside of its boundary.
struct Bounds {
  int s_begin, t_begin, s_end, t_end;
};

inline Bounds GetBounds(constant RnntSmoothedParams &params,
                        device const long *boundary, int b) {  // NOLINT
  if (!params.has_boundary) return Bounds{0, 0, params.S, params.T};
  boundary += 4 * ulong(b);
  return Bounds{static_cast<int>(boundary[0]), static_cast<int>(boundary[1]),
                static_cast<int>(boundary[2]), static_cast<int>(boundary[3])};
}

// Returns whether the result depends on am[b][t].
inline bool ReadsFrame(constant RnntSmoothedParams &params, Bounds bounds,
                       int t) {
  return !params.skips_padding || (t >= bounds.t_begin && t < bounds.t_end);
}

// Returns whether the result depends on lm[b][s].  If am_scale is not 0, the
// result depends on an average over all positions of lm, which ignores the
// boundary.
inline bool ReadsPosition(constant RnntSmoothedParams &params, Bounds bounds,
                          int s) {
  return !params.skips_padding || params.am_scale != 0.0f ||
         (s >= bounds.s_begin && s <= bounds.s_end);
}

// Returns whether `symbol` has logits.
inline bool IsSymbol(constant RnntSmoothedParams &params,
                     long symbol) {  // NOLINT
  return symbol >= 0 && symbol < params.C;
}

// Returns whether a symbol of sequence b has no logits.  The outputs and the
// gradients of such a sequence are NaN.  All lanes of a simdgroup call this
// function.
inline bool HasWrongSymbol(constant RnntSmoothedParams &params,
                           device const long *symbols, int b,  // NOLINT
                           int lane) {
  symbols += ulong(b) * params.S;
  int ans = 0;
  for (int s = lane; s < params.S; s += kSimdWidth)
    ans |= !IsSymbol(params, symbols[s]);
  return simd_max(ans) != 0;
}

// Returns scale * x.  Returns 0 for a scale of 0, even if x is infinite.
inline float Scaled(float scale, float x) {
  return scale == 0.0f ? 0.0f : scale * x;
}

// A sum of exponentials: exp(largest) * sum.
struct LogSum {
  float largest, sum;
};

// Returns the empty sum.  `largest` is finite, so that Add() can take an x of
// -infinity.
inline LogSum EmptySum() { return LogSum{-FLT_MAX, 0.0f}; }

// Adds exp(x) * weight.
inline void Add(thread LogSum *to, float x, float weight) {
  if (x > to->largest) {
    to->sum = to->sum * exp(to->largest - x) + weight;
    to->largest = x;
  } else {
    to->sum += exp(x - to->largest) * weight;
  }
}

// Returns the log of a sum, or kLogTiny if the log is smaller.  Returns NaN for
// NaN.
inline float LogOf(float sum) {
  const float ans = log(sum);
  return ans < kLogTiny ? kLogTiny : ans;
}

inline float Log(LogSum sum) {
  const float ans = sum.largest + log(sum.sum);
  return ans < kLogTiny ? kLogTiny : ans;
}

// Returns the log of the sum of all lanes' sums.
inline float LogOfAll(LogSum sum) {
  const float largest = simd_max(sum.largest);
  return Log(LogSum{largest, simd_sum(sum.sum * exp(sum.largest - largest))});
}

// The gradients of px and py.  In the column after the last frame, px is
// -infinity, and X() returns 0.
struct CellGrads {
  device const float *px_grad;  // [B][S][px_columns]
  device const float *py_grad;  // [B][S + 1][T]

  float X(constant RnntSmoothedParams &params, Bounds bounds, int b, int s,
          int t) const {
    if (s < 0 || s >= params.S ||
        (params.px_columns > params.T && t == bounds.t_end))
      return 0.0f;
    return px_grad[(ulong(b) * params.S + s) * params.px_columns + t];
  }

  float Y(constant RnntSmoothedParams &params, Bounds bounds, int b, int s,
          int t) const {
    const float own = py_grad[(ulong(b) * (params.S + 1) + s) * params.T + t];
    return params.constrained ? own + X(params, bounds, b, s - 1, t) : own;
  }
};

// Returns the factor by which px_grad and py_grad of a sequence are multiplied.
inline float GradScale(constant RnntSmoothedParams &params,
                       device const float *loss_grad, int b) {
  return params.grad_mode == kSmoothedModeOne    ? 1.0f
         : params.grad_mode == kSmoothedModeNone ? -loss_grad[b]
         : params.grad_mode == kSmoothedModeSum
             ? -loss_grad[0]
             : -loss_grad[0] / static_cast<float>(params.B);
}

#endif  // K2_CSRC_MPS_KERNELS_RNNT_CELLS_H_
