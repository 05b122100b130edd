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

// The kernels of rnnt_loss_smoothed() and rnnt_loss_simple() of
// k2/python/k2/rnnt_loss.py, except the recursion.  F. Kuang et al., Pruned
// RNN-T for Fast, Memory-Efficient ASR Training, Interspeech 2022, section 3,
// has the formulas.
//
// The probability of symbol c at position s and frame t is
// exp(am[t][c] + lm[s][c]), normalized over c.  A matrix product of
// exp(am - am_max) and exp(lm - lm_max) gives all normalizers of a sequence.
//
// px is a weighted sum of three log-probs of the next symbol.  The first
// log-prob is computed from am and lm, the second one from lm alone, and the
// third one from am and the average, over all positions, of the probabilities
// of lm.  py is the same sum for the blank.
//
// Each simdgroup processes a row, which is a frame or a position.  Sums are
// added up in a fixed order, so two runs give bit for bit the same results.

// Finds the next occurrence of symbols[i] and returns 2 * (position of this
// occurrence + 1), or 0 if there is no next occurrence.  Adds 1 if the symbol
// has occurred before i, or if the loss does not depend on symbols[i].  All
// lanes call this function.
inline int NextPlace(constant RnntSmoothedParams &params,
                     device const long *symbols, Bounds bounds, int i,
                     int lane) {
  const long own = symbols[i];
  const int end = params.skips_padding ? bounds.s_end : params.S;
  if (i >= end || !IsSymbol(params, own)) return 1;
  int next = INT_MAX, before = 0;
  for (int k = lane; k < end; k += kSimdWidth) {
    if (symbols[k] != own) continue;
    before |= k < i;
    if (k > i) next = min(next, k);
  }
  next = simd_min(next);
  return simd_max(before) + (next == INT_MAX ? 0 : 2 * (next + 1));
}

// am, lm       [B][T][C], [B][S + 1][C]
// symbols      [B][S]
// boundary     [B][4]: s_begin, t_begin, s_end, t_end; not read if
//              !params.has_boundary
// am_exp, lm_exp   of the shapes of am and lm, get exp(am - am_max) and
//              exp(lm - lm_max)
// am_max, lm_max   [B][T] and [B][S + 1], get the largest logit of each row
// lm_log_sum   [B][S + 1], gets the log of the sum of each row of lm_exp
// next         [B][S], gets what NextPlace() returns
//
// If a row of logits is not read, the outputs of this row get 0.
[[max_total_threads_per_threadgroup(kSmoothedThreads)]]
kernel void rnnt_smoothed_rows(
    device const float *am [[buffer(kSmoothedAm)]],
    device const float *lm [[buffer(kSmoothedLm)]],
    device const long *symbols [[buffer(kSmoothedSymbols)]],
    device const long *boundary [[buffer(kSmoothedBoundary)]],
    device float *am_exp [[buffer(kSmoothedAmExp)]],
    device float *lm_exp [[buffer(kSmoothedLmExp)]],
    device float *am_max [[buffer(kSmoothedAmMax)]],
    device float *lm_max [[buffer(kSmoothedLmMax)]],
    device float *lm_log_sum [[buffer(kSmoothedLmLogSum)]],
    device int *next [[buffer(kSmoothedNext)]],
    constant RnntSmoothedParams &params [[buffer(kSmoothedParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  const Row row = GetRow(group, thread_index, num_threads);
  if (row.index >= NumRows(params)) return;
  const bool is_am = row.index < NumFrames(params);
  const int index = is_am ? row.index : row.index - NumFrames(params),
            size = is_am ? params.T : params.S + 1, b = index / size,
            place = index % size;
  const Bounds bounds = GetBounds(params, boundary, b);
  const bool is_read = is_am ? ReadsFrame(params, bounds, place)
                             : ReadsPosition(params, bounds, place);
  const ulong offset = ulong(index) * params.C;
  device const float *from = (is_am ? am : lm) + offset;
  device float *to = (is_am ? am_exp : lm_exp) + offset;
  float largest = -INFINITY, sum = 0.0f;
  if (is_read) {
    for (int c = row.lane; c < params.C; c += kSimdWidth)
      largest = max(largest, from[c]);
    largest = simd_max(largest);
    for (int c = row.lane; c < params.C; c += kSimdWidth) {
      const float e = exp(from[c] - largest);
      sum += e;
      to[c] = e;
    }
    sum = simd_sum(sum);
  } else {
    for (int c = row.lane; c < params.C; c += kSimdWidth) to[c] = 0.0f;
  }
  if (row.lane == 0)
    (is_am ? am_max : lm_max)[index] = is_read ? largest : 0.0f;
  if (is_am) return;
  if (row.lane == 0) lm_log_sum[index] = is_read ? log(sum) : 0.0f;
  if (place == params.S) return;
  const int found =
      NextPlace(params, symbols + ulong(b) * params.S, bounds, place, row.lane);
  if (row.lane == 0) next[b * params.S + place] = found;
}

// lm, lm_max, lm_log_sum   as for rnnt_smoothed_rows
// unigram                  [C], gets the log of the average, over all
//                          positions, of the probabilities of lm alone
//
// A threadgroup processes kSimdWidth symbols.  Each of its simdgroups processes
// a part of the positions.
[[max_total_threads_per_threadgroup(kSmoothedThreads)]]
kernel void rnnt_smoothed_unigram(
    device const float *lm [[buffer(kSmoothedLm)]],
    device const float *lm_max [[buffer(kSmoothedLmMax)]],
    device const float *lm_log_sum [[buffer(kSmoothedLmLogSum)]],
    device float *unigram [[buffer(kSmoothedUnigram)]],
    constant RnntSmoothedParams &params [[buffer(kSmoothedParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  threadgroup LogSum parts[kSmoothedThreads];
  const int num_positions = params.B * (params.S + 1),
            step = int(num_threads) / kSimdWidth,
            c = int(group) * kSimdWidth + int(thread_index) % kSimdWidth;
  LogSum sum = EmptySum();
  if (c < params.C) {
    for (int i = int(thread_index) / kSimdWidth; i < num_positions; i += step)
      Add(&sum, lm[ulong(i) * params.C + c] - lm_max[i] - lm_log_sum[i], 1.0f);
  }
  parts[thread_index] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (int(thread_index) >= kSimdWidth || c >= params.C) return;
  for (int i = 1; i < step; ++i) {
    const LogSum part = parts[int(thread_index) + i * kSimdWidth];
    Add(&sum, part.largest, part.sum);
  }
  sum.sum /= float(num_positions);
  unigram[c] = Log(sum);
}

// am, am_max    as for rnnt_smoothed_rows
// unigram       what rnnt_smoothed_unigram wrote
// am_log_sum    [B][T], gets the log of the sum of exp(am - am_max + unigram)
[[max_total_threads_per_threadgroup(kSmoothedThreads)]]
kernel void rnnt_smoothed_am_only(
    device const float *am [[buffer(kSmoothedAm)]],
    device const float *am_max [[buffer(kSmoothedAmMax)]],
    device const float *unigram [[buffer(kSmoothedUnigram)]],
    device const long *boundary [[buffer(kSmoothedBoundary)]],
    device float *am_log_sum [[buffer(kSmoothedAmLogSum)]],
    constant RnntSmoothedParams &params [[buffer(kSmoothedParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  const Row row = GetRow(group, thread_index, num_threads);
  if (row.index >= NumFrames(params)) return;
  const Bounds bounds = GetBounds(params, boundary, row.index / params.T);
  float ans = 0.0f;
  if (ReadsFrame(params, bounds, row.index % params.T)) {
    am += ulong(row.index) * params.C;
    LogSum sum = EmptySum();
    for (int c = row.lane; c < params.C; c += kSimdWidth)
      Add(&sum, am[c] - am_max[row.index] + unigram[c], 1.0f);
    ans = LogOfAll(sum);
  }
  if (row.lane == 0) am_log_sum[row.index] = ans;
}

// Returns the log of the sum over c of exp(am - am_max + lm - lm_max), for one
// position and this lane's frame.  All lanes call this function.
//
// am, am_max   of the first lane's frame; the frames of the other lanes follow
// lm, lm_max   of the position
// product      the sum as the matrix product computed it; 1 if the caller does
//              not need the result
inline float LogProduct(constant RnntSmoothedParams &params,
                        device const float *am, device const float *am_max,
                        device const float *lm, float lm_max, float product,
                        int lane) {
  float ans = LogOf(product);
  uint low = uint(simd_vote::vote_t(simd_ballot(product < kLowSum)));
  for (; low != 0; low &= low - 1) {
    const int frame = int(ctz(low));
    device const float *row = am + ulong(frame) * params.C;
    LogSum sum = EmptySum();
    for (int c = lane; c < params.C; c += kSimdWidth)
      Add(&sum, (row[c] - am_max[frame]) + (lm[c] - lm_max), 1.0f);
    const float exact = LogOfAll(sum);
    if (lane == frame) ans = exact;
  }
  return ans;
}

// Returns the score of a symbol or of the blank.
//
// am, lm       its logits, minus the largest logits of am and lm
// log_sum      the log of the sum over all symbols, for both logits together
// lm_log_sum   the same for lm's logits alone
// unigram      [C]; not read if params.am_scale is 0
// symbol       its index
// am_sum       the log of the sum for am's logits plus `unigram`
inline float ScoreOf(constant RnntSmoothedParams &params, float am, float lm,
                     float log_sum, float lm_log_sum,
                     device const float *unigram, long symbol, float am_sum) {
  return Scaled(params.combined_scale, am + lm - log_sum) +
         Scaled(params.lm_scale, lm - lm_log_sum) +
         (params.am_scale == 0.0f
              ? 0.0f
              : params.am_scale * (am + unigram[symbol] - am_sum));
}

// Reads am's logits of a tile into `am_of_symbols`, [position][frame].  The
// element of a position is the logit of the symbol at this position, or 0 if no
// score needs that logit.
//
// am, symbols         of the sequence
// first_s, first_t    where the tile begins
inline void LoadLogitsOfSymbols(
    constant RnntSmoothedParams &params, Bounds bounds, device const float *am,
    device const long *symbols, int first_s, int first_t, int simdgroup,
    int num_simdgroups, int lane,
    threadgroup float (*am_of_symbols)[kSmoothedTile + 1]) {
  // A lane processes a position, so that all lanes read the same row of am.
  const int s = first_s + lane;
  const long y = s < params.S ? symbols[s] : -1;
  for (int i = simdgroup; i < kSmoothedTile; i += num_simdgroups) {
    const int t = first_t + i;
    const bool is_read =
        t < params.T && IsSymbol(params, y) && ReadsFrame(params, bounds, t);
    am_of_symbols[lane][i] =
        is_read ? am[ulong(t) * params.C + ulong(y)] : 0.0f;
  }
}

// Sets the gradient of a cell of px or py to 0 if the backward pass of the
// recursion does not write this cell.  It writes the cells from (s_begin,
// t_begin) to (s_end - 1, t_end - 1).
inline void ClearOutside(device float *grad, int s, int s_begin, int s_end,
                         int t, int t_begin, int t_end) {
  if (s < s_begin || s >= s_end || t < t_begin || t >= t_end) *grad = 0.0f;
}

// am, lm, symbols, boundary, am_max, lm_max, lm_log_sum   as for
//                    rnnt_smoothed_rows
// products           [B][S + 1][T], the matrix products of lm_exp and am_exp
// unigram, am_log_sum   what rnnt_smoothed_unigram and rnnt_smoothed_am_only
//                    wrote; not read if params.am_scale is 0
// px, py             [B][S][px_columns], [B][S + 1][T], are written; NaN for a
//                    sequence with a wrong symbol
// log_sums           [B][S + 1][T], gets the logs of the products
// px_grad, py_grad   of the shapes of px and py; if params.has_grads, get 0
//                    outside of the boundary
// ones               [B], gets 1 if params.has_grads
//
// A threadgroup processes a tile of kSmoothedTile positions and kSmoothedTile
// frames.  A simdgroup processes one position at a time, and a lane processes
// one frame.
[[max_total_threads_per_threadgroup(kSmoothedThreads)]]
kernel void rnnt_smoothed_scores(
    device const float *am [[buffer(kSmoothedAm)]],
    device const float *lm [[buffer(kSmoothedLm)]],
    device const long *symbols [[buffer(kSmoothedSymbols)]],
    device const long *boundary [[buffer(kSmoothedBoundary)]],
    device const float *am_max [[buffer(kSmoothedAmMax)]],
    device const float *lm_max [[buffer(kSmoothedLmMax)]],
    device const float *lm_log_sum [[buffer(kSmoothedLmLogSum)]],
    device const float *products [[buffer(kSmoothedProducts)]],
    device const float *unigram [[buffer(kSmoothedUnigram)]],
    device const float *am_log_sum [[buffer(kSmoothedAmLogSum)]],
    device float *px [[buffer(kSmoothedPx)]],
    device float *py [[buffer(kSmoothedPy)]],
    device float *log_sums [[buffer(kSmoothedLogSums)]],
    device float *px_grad [[buffer(kSmoothedPxGrad)]],
    device float *py_grad [[buffer(kSmoothedPyGrad)]],
    device float *ones [[buffer(kSmoothedOnes)]],
    constant RnntSmoothedParams &params [[buffer(kSmoothedParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  threadgroup float am_of_symbols[kSmoothedTile][kSmoothedTile + 1];
  const int lane = int(thread_index) % kSimdWidth,
            simdgroup = int(thread_index) / kSimdWidth,
            num_simdgroups = int(num_threads) / kSimdWidth,
            s_tiles = params.S / kSmoothedTile + 1,
            t_tiles = (params.px_columns - 1) / kSmoothedTile + 1,
            first_t = int(group) % t_tiles * kSmoothedTile,
            first_s = int(group) / t_tiles % s_tiles * kSmoothedTile,
            b = int(group) / (t_tiles * s_tiles), S = params.S, T = params.T,
            t = first_t + lane;
  const Bounds bounds = GetBounds(params, boundary, b);
  const bool is_regular = params.px_columns > T;
  const float valid = HasWrongSymbol(params, symbols, b, lane) ? NAN : 1.0f;
  am += ulong(b) * T * params.C;
  am_max += ulong(b) * T;
  am_log_sum += params.am_scale == 0.0f ? 0 : ulong(b) * T;
  symbols += ulong(b) * S;

  LoadLogitsOfSymbols(params, bounds, am, symbols, first_s, first_t, simdgroup,
                      num_simdgroups, lane, am_of_symbols);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const bool has_frame = t < T,
             reads_frame = has_frame && ReadsFrame(params, bounds, t);
  const float largest = has_frame ? am_max[t] : 0.0f,
              am_blank = reads_frame
                             ? am[ulong(t) * params.C + params.blank] - largest
                             : 0.0f,
              am_sum =
                  reads_frame && params.am_scale != 0.0f ? am_log_sum[t] : 0.0f;
  if (params.has_grads && first_s == 0 && group % uint(t_tiles) == 0 &&
      thread_index == 0)
    ones[b] = 1.0f;
  for (int i = simdgroup; i < kSmoothedTile && first_s + i <= S;
       i += num_simdgroups) {
    const int s = first_s + i;
    const bool is_read = reads_frame && ReadsPosition(params, bounds, s);
    float log_sum = 0.0f, blank = 0.0f, blank_after = 0.0f;
    // If rnnt_type is constrained, px includes the blank of the next position.
    for (int after = 0; after <= params.constrained && s + after <= S;
         ++after) {
      const ulong row = ulong(b) * (S + 1) + s + after;
      device const float *lm_row = lm + row * params.C;
      const bool is_needed =
          reads_frame && ReadsPosition(params, bounds, s + after);
      const float product = is_needed && params.combined_scale != 0.0f
                                ? products[row * T + t]
                                : 1.0f;
      const float sum =
          LogProduct(params, am + ulong(first_t) * params.C, am_max + first_t,
                     lm_row, lm_max[row], product, lane);
      if (!is_needed) continue;
      const float lm_blank = lm_row[params.blank] - lm_max[row];
      const float score =
          ScoreOf(params, am_blank, lm_blank, sum, lm_log_sum[row], unigram,
                  params.blank, am_sum);
      if (after == 0) {
        log_sum = sum;
        blank = score;
      } else {
        blank_after = score;
      }
    }
    const ulong row = ulong(b) * (S + 1) + s;
    if (has_frame) {
      log_sums[row * T + t] = log_sum;
      py[row * T + t] = valid * blank;
      if (params.has_grads)
        ClearOutside(py_grad + row * T + t, s, bounds.s_begin, bounds.s_end + 1,
                     t, bounds.t_begin, bounds.t_end);
    }
    if (s == S || t >= params.px_columns) continue;
    const ulong cell = (ulong(b) * S + s) * params.px_columns + t;
    if (params.has_grads)
      ClearOutside(px_grad + cell, s, bounds.s_begin, bounds.s_end, t,
                   bounds.t_begin, bounds.t_end + int(is_regular));
    const long y = symbols[s];
    float score = 0.0f;
    if (is_regular && (t == bounds.t_end || t == T)) {
      score = -INFINITY;
      // Without a boundary, k2 adds the logit of lm here, too.  This logit may
      // be NaN.
      if (!params.has_boundary && IsSymbol(params, y))
        score += lm[row * params.C + ulong(y)];
    } else if (is_read && IsSymbol(params, y)) {
      const float am_symbol = am_of_symbols[i][lane] - largest,
                  lm_symbol = lm[row * params.C + ulong(y)] - lm_max[row];
      score =
          ScoreOf(params, am_symbol, lm_symbol, log_sum, lm_log_sum[row],
                  unigram, y, am_sum) +
          params.delay_penalty * (0.5f * float(bounds.t_end - 1) - float(t)) +
          blank_after;
    }
    // The recursion drops a NaN that comes from the left.  But if lm_scale is
    // not 0, k2 returns NaN for a NaN in any position of lm.  So if a position
    // of lm has a NaN, the product of 0 and the sums below makes px NaN at this
    // position and at the position before it.
    px[cell] =
        valid * score +
        Scaled(params.lm_scale, 0.0f * (lm_log_sum[row] + lm_log_sum[row + 1]));
  }
}
