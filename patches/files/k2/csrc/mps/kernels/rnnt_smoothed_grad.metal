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

#include "k2/csrc/mps/kernels/rnnt_smoothed.h"

using namespace metal;

#include "k2/csrc/mps/kernels/rnnt_cells.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// Computes the gradients of lm and am from the gradients of px and py; see
// rnnt_smoothed.metal.
//
// Let P be the matrix product lm_exp am_exp^T, and let W be the gradient of P.
// torch computes the matrix products W^T lm_exp and W am_exp.  The gradient of
// am that comes through P is the elementwise product of W^T lm_exp and am_exp.
// The gradient of lm that comes through P is the elementwise product of W
// am_exp and lm_exp.  If an element of P is so small that terms may be missing
// from it, the element of W is 0, and the kernels compute probabilities from
// logits instead.

// Returns whether an element of P is so small that W is 0 there.  log_sum is
// the log of the element of P.
inline bool IsLow(float log_sum) { return log_sum < kLogLowSum; }

// Sums over the frames of a position, or over the positions of a frame.
struct CellSums {
  float x, y;   // the sum of px_grad, and the sum of py_grad
  int has_low;  // whether an element of P is low, see IsLow()
};

// px_grad, py_grad   [B][S][px_columns], [B][S + 1][T]
// boundary, loss_grad   see GetBounds() and GradScale()
// log_sums           what rnnt_smoothed_scores wrote
// weights            [B][S + 1][T], gets W; not written if
//                    params.combined_scale is 0
// sums               [B][S + 1], gets the sums of each position
[[max_total_threads_per_threadgroup(kSmoothedThreads)]]
kernel void rnnt_smoothed_weights(
    device const float *px_grad [[buffer(kSmoothedPxGrad)]],
    device const float *py_grad [[buffer(kSmoothedPyGrad)]],
    device const long *boundary [[buffer(kSmoothedBoundary)]],
    device const float *loss_grad [[buffer(kSmoothedLossGrad)]],
    device const float *log_sums [[buffer(kSmoothedLogSums)]],
    device float *weights [[buffer(kSmoothedWeights)]],
    device CellSums *sums [[buffer(kSmoothedSums)]],
    constant RnntSmoothedParams &params [[buffer(kSmoothedParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  const Row row = GetRow(group, thread_index, num_threads);
  if (row.index >= params.B * (params.S + 1)) return;
  const int b = row.index / (params.S + 1), s = row.index % (params.S + 1);
  const Bounds bounds = GetBounds(params, boundary, b);
  const CellGrads grads = {px_grad, py_grad};
  const float scale = GradScale(params, loss_grad, b);
  float sum_x = 0.0f, sum_y = 0.0f;
  int has_low = 0;
  for (int t = row.lane; t < params.T; t += kSimdWidth) {
    const float x = grads.X(params, bounds, b, s, t),
                y = grads.Y(params, bounds, b, s, t);
    sum_x += x;
    sum_y += y;
    if (params.combined_scale == 0.0f) continue;
    const ulong cell = ulong(row.index) * params.T + t;
    const float both = scale * (x + y), log_sum = log_sums[cell];
    const bool is_low = IsLow(log_sum);
    has_low |= is_low && both != 0.0f;
    weights[cell] = is_low || both == 0.0f
                        ? 0.0f
                        : -params.combined_scale * both * exp(-log_sum);
  }
  sum_x = simd_sum(sum_x);
  sum_y = simd_sum(sum_y);
  has_low = simd_max(has_low);
  if (row.lane == 0)
    sums[row.index] = CellSums{scale * sum_x, scale * sum_y, has_low};
}

// Returns the sums of frame t over all positions.  All lanes call this
// function.
inline CellSums SumsOfFrame(constant RnntSmoothedParams &params,
                            CellGrads grads, device const float *log_sums,
                            Bounds bounds, int b, int t, int lane) {
  CellSums sums = {0.0f, 0.0f, 0};
  for (int s = lane; s <= params.S; s += kSimdWidth) {
    sums.x += grads.X(params, bounds, b, s, t);
    sums.y += grads.Y(params, bounds, b, s, t);
    sums.has_low |=
        IsLow(log_sums[(ulong(b) * (params.S + 1) + s) * params.T + t]);
  }
  return CellSums{simd_sum(sums.x), simd_sum(sums.y), simd_max(sums.has_low)};
}

// px_grad, py_grad, boundary, loss_grad, log_sums   as for
//              rnnt_smoothed_weights
// am, am_max, unigram, am_log_sum   as for rnnt_smoothed_scores
// parts        [pieces][C], gets, for each piece, the gradient of unigram that
//              comes through the elements of am_log_sum for the piece's frames
//
// Each threadgroup processes a piece, which is kSmoothedFramesOfPiece frames.
[[max_total_threads_per_threadgroup(kSmoothedThreads)]]
kernel void rnnt_smoothed_am_only_parts(
    device const float *px_grad [[buffer(kSmoothedPxGrad)]],
    device const float *py_grad [[buffer(kSmoothedPyGrad)]],
    device const long *boundary [[buffer(kSmoothedBoundary)]],
    device const float *loss_grad [[buffer(kSmoothedLossGrad)]],
    device const float *log_sums [[buffer(kSmoothedLogSums)]],
    device const float *am [[buffer(kSmoothedAm)]],
    device const float *am_max [[buffer(kSmoothedAmMax)]],
    device const float *unigram [[buffer(kSmoothedUnigram)]],
    device const float *am_log_sum [[buffer(kSmoothedAmLogSum)]],
    device float *parts [[buffer(kSmoothedParts)]],
    constant RnntSmoothedParams &params [[buffer(kSmoothedParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  threadgroup float frame_grads[kSmoothedFramesOfPiece];
  const CellGrads grads = {px_grad, py_grad};
  const int first = int(group) * kSmoothedFramesOfPiece,
            num_frames =
                min(int(kSmoothedFramesOfPiece), params.B * params.T - first),
            lane = int(thread_index) % kSimdWidth;
  for (int i = int(thread_index) / kSimdWidth; i < num_frames;
       i += int(num_threads) / kSimdWidth) {
    const int b = (first + i) / params.T, t = (first + i) % params.T;
    const CellSums sums = SumsOfFrame(
        params, grads, log_sums, GetBounds(params, boundary, b), b, t, lane);
    if (lane == 0)
      frame_grads[i] = -params.am_scale * GradScale(params, loss_grad, b) *
                       (sums.x + sums.y);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int c = int(thread_index); c < params.C; c += int(num_threads)) {
    float sum = 0.0f;
    for (int i = 0; i < num_frames; ++i) {
      if (frame_grads[i] == 0.0f) continue;
      const int row = first + i;
      sum += frame_grads[i] * exp(am[ulong(row) * params.C + c] - am_max[row] +
                                  unigram[c] - am_log_sum[row]);
    }
    parts[ulong(group) * params.C + c] = sum;
  }
}

// symbols        [B][S]
// sums           what rnnt_smoothed_weights wrote
// parts          what rnnt_smoothed_am_only_parts wrote
// unigram_grad   [C], gets the gradient of unigram
//
// There is a thread for each symbol.
[[max_total_threads_per_threadgroup(kSmoothedThreads)]]
kernel void rnnt_smoothed_unigram_grad(
    device const long *symbols [[buffer(kSmoothedSymbols)]],
    device const CellSums *sums [[buffer(kSmoothedSums)]],
    device const float *parts [[buffer(kSmoothedParts)]],
    device float *unigram_grad [[buffer(kSmoothedUnigramGrad)]],
    constant RnntSmoothedParams &params [[buffer(kSmoothedParams)]],
    uint thread_index [[thread_position_in_grid]]) {
  const int c = int(thread_index);
  if (c >= params.C) return;
  float sum = 0.0f;
  for (int b = 0; b < params.B; ++b) {
    for (int s = 0; s <= params.S; ++s) {
      device const CellSums *own = sums + b * (params.S + 1) + s;
      if (s < params.S && symbols[b * params.S + s] == c) sum += own->x;
      if (c == params.blank) sum += own->y;
    }
  }
  sum *= params.am_scale;
  const int num_pieces = (params.B * params.T - 1) / kSmoothedFramesOfPiece + 1;
  for (int i = 0; i < num_pieces; ++i) sum += parts[ulong(i) * params.C + c];
  unigram_grad[c] = sum;
}

// What rnnt_smoothed_finish reads.
struct Inputs {
  CellGrads grads;
  device const long *symbols, *boundary;
  device const float *loss_grad, *am, *lm, *am_exp, *lm_exp, *am_max, *lm_max,
      *lm_log_sum, *unigram, *am_log_sum, *log_sums, *unigram_grad;
  device const int *next;
  device const CellSums *sums;

  // Returns the gradient of the log of a low element of P.
  float LowGrad(constant RnntSmoothedParams &params, Bounds bounds, int b,
                int s, int t) const {
    return -params.combined_scale * GradScale(params, loss_grad, b) *
           (grads.X(params, bounds, b, s, t) +
            grads.Y(params, bounds, b, s, t));
  }
};

// Adds to a row of gradients the part that comes through a low element of P.
inline void AddLow(constant RnntSmoothedParams &params, Inputs in,
                   Bounds bounds, int b, int s, int t, int lane,
                   device float *to) {
  const ulong frame = ulong(b) * params.T + t,
              position = ulong(b) * (params.S + 1) + s;
  const float grad = in.LowGrad(params, bounds, b, s, t),
              log_sum = in.log_sums[position * params.T + t];
  if (grad == 0.0f) return;
  for (int c = lane; c < params.C; c += kSimdWidth)
    to[c] += grad * exp((in.am[frame * params.C + c] - in.am_max[frame]) +
                        (in.lm[position * params.C + c] - in.lm_max[position]) -
                        log_sum);
}

// Finishes the row of a frame.  `to` has W^T lm_exp, and gets the gradient of
// am.
inline void FinishFrame(constant RnntSmoothedParams &params, Inputs in,
                        int frame, int lane, device float *to) {
  const int b = frame / params.T, t = frame % params.T, S = params.S;
  const Bounds bounds = GetBounds(params, in.boundary, b);
  const CellSums sums =
      SumsOfFrame(params, in.grads, in.log_sums, bounds, b, t, lane);
  const float scale = GradScale(params, in.loss_grad, b),
              own_scale = (params.combined_scale + params.am_scale) * scale,
              am_only = -params.am_scale * scale * (sums.x + sums.y);
  device const float *am_exp = in.am_exp + ulong(frame) * params.C;
  device const float *am = in.am + ulong(frame) * params.C;
  for (int c = lane; c < params.C; c += kSimdWidth) {
    float grad = params.combined_scale == 0.0f ? 0.0f : to[c] * am_exp[c];
    if (am_only != 0.0f)
      grad += am_only * exp(am[c] - in.am_max[frame] + in.unigram[c] -
                            in.am_log_sum[frame]);
    if (c == params.blank) grad += own_scale * sums.y;
    to[c] = grad;
  }
  // A lane adds up all positions of a symbol.  No other lane has the same
  // symbol.
  simdgroup_barrier(mem_flags::mem_device);
  device const int *next = in.next + b * S;
  for (int s = lane; s < S; s += kSimdWidth) {
    int places = next[s];
    if (places % 2 != 0) continue;
    float sum = in.grads.X(params, bounds, b, s, t);
    while (places >= 2) {
      const int place = places / 2 - 1;
      sum += in.grads.X(params, bounds, b, place, t);
      places = next[place];
    }
    to[in.symbols[ulong(b) * S + s]] += own_scale * sum;
  }
  simdgroup_barrier(mem_flags::mem_device);
  if (!sums.has_low || params.combined_scale == 0.0f) return;
  for (int s = 0; s <= S; ++s) {
    if (IsLow(in.log_sums[(ulong(b) * (S + 1) + s) * params.T + t]))
      AddLow(params, in, bounds, b, s, t, lane, to);
  }
}

// Finishes the row of a position.  `to` has W am_exp, and gets the gradient of
// lm.
inline void FinishPosition(constant RnntSmoothedParams &params, Inputs in,
                           int position, int lane, device float *to) {
  const int b = position / (params.S + 1), s = position % (params.S + 1);
  const Bounds bounds = GetBounds(params, in.boundary, b);
  const ulong offset = ulong(position) * params.C;
  device const float *lm = in.lm + offset, *lm_exp = in.lm_exp + offset;
  const CellSums sums = in.sums[position];
  const float log_sum = in.lm_log_sum[position], largest = in.lm_max[position],
              own_scale = params.combined_scale + params.lm_scale,
              share = 1.0f / float(params.B * (params.S + 1));
  // The gradient of a log-prob of lm alone reaches all logits of the row.
  float lm_only = Scaled(params.lm_scale, sums.x + sums.y);
  if (params.am_scale != 0.0f) {
    float sum = 0.0f;
    for (int c = lane; c < params.C; c += kSimdWidth)
      sum += in.unigram_grad[c] * share *
             exp(lm[c] - largest - log_sum - in.unigram[c]);
    lm_only += simd_sum(sum);
  }
  const long symbol = s < params.S ? in.symbols[ulong(b) * params.S + s] : -1;
  for (int c = lane; c < params.C; c += kSimdWidth) {
    float grad = params.combined_scale == 0.0f ? 0.0f : to[c] * lm_exp[c];
    if (lm_only != 0.0f) grad -= lm_only * exp(-log_sum) * lm_exp[c];
    if (params.am_scale != 0.0f)
      grad += in.unigram_grad[c] * share *
              exp(lm[c] - largest - log_sum - in.unigram[c]);
    if (c == symbol) grad += own_scale * sums.x;
    if (c == params.blank) grad += own_scale * sums.y;
    to[c] = grad;
  }
  if (!sums.has_low || params.combined_scale == 0.0f) return;
  for (int t = 0; t < params.T; ++t) {
    if (IsLow(in.log_sums[ulong(position) * params.T + t]))
      AddLow(params, in, bounds, b, s, t, lane, to);
  }
}

// px_grad, py_grad, boundary, loss_grad   as for rnnt_smoothed_weights
// am, lm, symbols, am_exp, lm_exp, am_max, lm_max, lm_log_sum, next   as for
//                      rnnt_smoothed_rows
// unigram, am_log_sum, log_sums   as for rnnt_smoothed_scores
// unigram_grad         what rnnt_smoothed_unigram_grad wrote; not read if
//                      params.am_scale is 0
// sums                 what rnnt_smoothed_weights wrote
// am_grad, lm_grad     of the shapes of am and lm; the gradients replace the
//                      products W^T lm_exp and W am_exp.  The products are not
//                      read if params.combined_scale is 0.  The gradients of
//                      a sequence with a wrong symbol are NaN
[[max_total_threads_per_threadgroup(kSmoothedThreads)]]
kernel void rnnt_smoothed_finish(
    device const float *px_grad [[buffer(kSmoothedPxGrad)]],
    device const float *py_grad [[buffer(kSmoothedPyGrad)]],
    device const long *boundary [[buffer(kSmoothedBoundary)]],
    device const float *loss_grad [[buffer(kSmoothedLossGrad)]],
    device const float *am [[buffer(kSmoothedAm)]],
    device const float *lm [[buffer(kSmoothedLm)]],
    device const long *symbols [[buffer(kSmoothedSymbols)]],
    device const float *am_exp [[buffer(kSmoothedAmExp)]],
    device const float *lm_exp [[buffer(kSmoothedLmExp)]],
    device const float *am_max [[buffer(kSmoothedAmMax)]],
    device const float *lm_max [[buffer(kSmoothedLmMax)]],
    device const float *lm_log_sum [[buffer(kSmoothedLmLogSum)]],
    device const int *next [[buffer(kSmoothedNext)]],
    device const float *unigram [[buffer(kSmoothedUnigram)]],
    device const float *am_log_sum [[buffer(kSmoothedAmLogSum)]],
    device const float *log_sums [[buffer(kSmoothedLogSums)]],
    device const float *unigram_grad [[buffer(kSmoothedUnigramGrad)]],
    device const CellSums *sums [[buffer(kSmoothedSums)]],
    device float *am_grad [[buffer(kSmoothedAmGrad)]],
    device float *lm_grad [[buffer(kSmoothedLmGrad)]],
    constant RnntSmoothedParams &params [[buffer(kSmoothedParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  const Row row = GetRow(group, thread_index, num_threads);
  if (row.index >= NumRows(params)) return;
  const Inputs in = {{px_grad, py_grad},
                     symbols,
                     boundary,
                     loss_grad,
                     am,
                     lm,
                     am_exp,
                     lm_exp,
                     am_max,
                     lm_max,
                     lm_log_sum,
                     unigram,
                     am_log_sum,
                     log_sums,
                     unigram_grad,
                     next,
                     sums};
  const int position = row.index - NumFrames(params),
            b = position < 0 ? row.index / params.T : position / (params.S + 1);
  device float *to = position < 0 ? am_grad + ulong(row.index) * params.C
                                  : lm_grad + ulong(position) * params.C;
  if (HasWrongSymbol(params, symbols, b, row.lane)) {
    for (int c = row.lane; c < params.C; c += kSimdWidth) to[c] = NAN;
    return;
  }
  if (position < 0)
    FinishFrame(params, in, row.index, row.lane, to);
  else
    FinishPosition(params, in, position, row.lane, to);
}
