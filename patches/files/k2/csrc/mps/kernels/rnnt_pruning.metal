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

#include "k2/csrc/mps/kernels/rnnt_pruning.h"

// get_rnnt_prune_ranges() and do_rnnt_pruning(), and the input of a joiner that
// is tanh(am + lm), of pruned am and lm.

using namespace metal;

constant int kSimdWidth = 32;
constant int kNoBegin = 1 << 30;  // more than any begin

// Replaces values[t * stride], for t from `from` to `to` - 1, by
// step * t - max(low, the smallest value from t on).  The threads of a
// threadgroup have consecutive parts of the values.  `least` has an element for
// each simdgroup.
inline void SubtractLowerBounds(device long *values, int stride,  // NOLINT
                                int from, int to, int step, int low,
                                threadgroup int *least, int simdgroup, int lane,
                                int num_simdgroups) {
  int own = kNoBegin;
  for (int t = from; t < to; ++t) own = min(own, int(values[long(t) * stride]));
  // The smallest value of this thread's part and of the later parts of the
  // simdgroup.
  int suffix = own;
  for (int i = 1; i < kSimdWidth; i *= 2) {
    const int other = simd_shuffle_down(suffix, ushort(i));
    if (lane + i < kSimdWidth) suffix = min(suffix, other);
  }
  if (lane == 0) least[simdgroup] = suffix;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int next = simd_shuffle_down(suffix, ushort(1));
  int bound = lane + 1 < kSimdWidth ? next : kNoBegin;
  for (int i = simdgroup + 1; i < num_simdgroups; ++i)
    bound = min(bound, least[i]);
  for (int t = to - 1; t >= from; --t) {
    bound = min(bound, int(values[long(t) * stride]));
    values[long(t) * stride] = step * t - max(bound, low);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// px_grad    [B][S][px_columns]
// py_grad    [B][S + 1][T]
// boundary   [B][4]: s_begin, t_begin, s_end, t_end
// ranges     [B][T][R]
//
// There is a threadgroup of kPrRangesThreads for each sequence.
[[max_total_threads_per_threadgroup(kPrRangesThreads)]]
kernel void rnnt_prune_ranges(device const float *px_grad [[buffer(0)]],
                              device const float *py_grad [[buffer(1)]],
                              device const long *boundary [[buffer(2)]],
                              device long *ranges [[buffer(3)]],
                              constant RnntRangesParams &params [[buffer(4)]],
                              uint b [[threadgroup_position_in_grid]],
                              uint thread_index [[thread_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint simdgroup
                              [[simdgroup_index_in_threadgroup]]) {
  threadgroup int least[kPrRangesThreads / kSimdWidth];
  const int S = params.S, T = params.T, R = params.R,
            columns = params.px_columns;
  const long s_end = boundary[4 * long(b) + 2],
             t_end = boundary[4 * long(b) + 3];
  px_grad += ulong(b) * ulong(S) * ulong(columns);
  py_grad += ulong(b) * ulong(S + 1) * ulong(T);
  ranges += ulong(b) * ulong(T) * ulong(R);
  // The first best range of each frame, by the gradients that it keeps.
  for (int t = int(thread_index); t < T; t += kPrRangesThreads) {
    long best = max(s_end - R + 1, 0L);
    if (t < t_end - 1) {
      float most = -INFINITY;
      best = 0;
      for (int s = 0; s + R <= S + 1; ++s) {
        float sum = 0.0f;
        for (int j = 0; j < R; ++j) sum += py_grad[long(s + j) * T + t];
        if (s != 0) sum -= px_grad[long(s - 1) * columns + t];
        // As torch.argmax(), also for NaN.
        if (!(sum <= most) && !isnan(most)) {
          most = sum;
          best = s;
        }
      }
    }
    ranges[long(t) * R] = best;
  }
  threadgroup_barrier(mem_flags::mem_device);
  // _adjust_pruning_lower_bound() of rnnt_loss.py: begins do not fall, rise by
  // at most most_step, and are 0 at first.  Each thread has its own frames.
  const int part = (T + kPrRangesThreads - 1) / kPrRangesThreads,
            from = min(int(thread_index) * part, T), to = min(from + part, T),
            num_simdgroups = kPrRangesThreads / kSimdWidth;
  SubtractLowerBounds(ranges, R, from, to, params.most_step, -kNoBegin, least,
                      int(simdgroup), int(lane), num_simdgroups);
  SubtractLowerBounds(ranges, R, from, to, params.most_step, 0, least,
                      int(simdgroup), int(lane), num_simdgroups);
  for (int t = from; t < to; ++t) {
    const long begin = ranges[long(t) * R];
    for (int j = 1; j < R; ++j) ranges[long(t) * R + j] = begin + j;
  }
}

// am       [B][T][D]; read by rnnt_joiner_input alone
// lm       [B][S + 1][D]
// ranges   [B][T][R]
// out      [B][T][R][D]: rows of lm, or tanh(am + lm).  A range that does not
//          exist gives NaN.
//
// There is a simdgroup for each row of `out`.
template <typename Number, bool kTanh>
[[max_total_threads_per_threadgroup(kPrRowThreads)]]
kernel void rnnt_prune(device const Number *am [[buffer(0)]],
                       device const Number *lm [[buffer(1)]],
                       device const long *ranges [[buffer(2)]],
                       device Number *out [[buffer(3)]],
                       constant RnntPruningParams &params [[buffer(4)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const ulong row = ulong(group) * (kPrRowThreads / kSimdWidth) + simdgroup,
              frame = row / ulong(params.R), D = ulong(params.D);
  if (frame >= ulong(params.B) * ulong(params.T)) return;
  const long at = ranges[row];
  const bool is_valid = at >= 0 && at <= params.S;
  const ulong b = frame / ulong(params.T);
  lm += (b * ulong(params.S + 1) + ulong(is_valid ? at : 0)) * D;
  am += frame * D;
  out += row * D;
  for (ulong d = lane; d < D; d += kSimdWidth) {
    const Number value =
        kTanh ? Number(precise::tanh(float(am[d]) + float(lm[d]))) : lm[d];
    out[d] = is_valid ? value : Number(NAN);
  }
}

// out_grad  [B][T][R][D], the gradient of rnnt_prune's output
// out       the output; read if kTanh
// ranges    [B][T][R]
// am_grad   [B][T][D], the sums of out_grad over the rows of a frame
// lm_grad   [B][S + 1][D], the sums of out_grad over the rows of a position
//
// There is a threadgroup for 32 columns of a sequence and for a chunk of rows
// of lm_grad.  Its simdgroups have consecutive parts of the frames.  A lane
// adds up a column: first in its simdgroup's rows, in the order of frames, then
// over simdgroups, in their order.
//
// The positions of a part are few if ranges rise with the frames, as those of
// get_rnnt_prune_ranges() do.  Then all simdgroups have memory for their part,
// and the threadgroup of the first chunk does the whole sequence.  Otherwise
// params.num_simdgroups simdgroups have memory for all rows of a chunk.
template <typename Number, bool kTanh>
[[max_total_threads_per_threadgroup(kPrBackwardThreads)]]
kernel void rnnt_prune_backward(device const Number *out_grad [[buffer(0)]],
                                device const Number *out [[buffer(1)]],
                                device const long *ranges [[buffer(2)]],
                                device Number *am_grad [[buffer(3)]],
                                device Number *lm_grad [[buffer(4)]],
                                constant RnntPruningParams &params
                                [[buffer(5)]],
                                uint group [[threadgroup_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simdgroup
                                [[simdgroup_index_in_threadgroup]]) {
  constexpr int kAtOnce = 8;  // rows that a lane loads
  constexpr int kSimdgroups = kPrBackwardThreads / kSimdWidth,
                kPartRows = kPrMaxRows / kSimdgroups;
  threadgroup float sums[kPrMaxRows * kSimdWidth];
  // The first and the last position for which a simdgroup has memory.
  threadgroup int lowest[kSimdgroups], highest[kSimdgroups];
  const int T = params.T, R = params.R, D = params.D,
            num_blocks = (D + kSimdWidth - 1) / kSimdWidth,
            block = int(group) % num_blocks,
            chunk = int(group) / num_blocks % params.num_chunks,
            b = int(group) / num_blocks / params.num_chunks,
            d = block * kSimdWidth + int(lane);
  const ulong first_row = ulong(b) * ulong(T) * ulong(R);
  ranges += first_row;
  int num_simdgroups = kSimdgroups;
  int part = (T + kSimdgroups - 1) / kSimdgroups,
      from = min(int(simdgroup) * part, T), to = min(from + part, T);
  int low = params.S + 1, high = -1;
  if (params.has_lm_grad) {
    for (int row = from * R + int(lane); row < to * R; row += kSimdWidth) {
      const long s = ranges[row];
      if (s < 0 || s > params.S) continue;
      low = min(low, int(s));
      high = max(high, int(s));
    }
  }
  low = simd_min(low);
  high = simd_max(high);
  if (lane == 0) {
    lowest[simdgroup] = low;
    highest[simdgroup] = high;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  bool is_split = true;  // whether each simdgroup has memory for its part
  for (int i = 0; i < kSimdgroups; ++i)
    is_split = is_split && highest[i] - lowest[i] < kPartRows;
  if (is_split && chunk != 0) return;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int num_rows = kPartRows, first_s = 0, end_s = params.S + 1;
  if (!is_split) {
    num_simdgroups = params.num_simdgroups;
    num_rows = params.num_rows;
    first_s = chunk * num_rows;
    end_s = min(first_s + num_rows, params.S + 1);
    part = (T + num_simdgroups - 1) / num_simdgroups;
    from = min(int(simdgroup) * part, T);
    to = int(simdgroup) < num_simdgroups ? min(from + part, T) : from;
    low = first_s;
    high = end_s - 1;
    if (lane == 0) {
      lowest[simdgroup] = low;
      highest[simdgroup] = high;
    }
  }

  const bool is_column = d < D, needs_am = params.has_am_grad && chunk == 0;
  threadgroup float *own =
      sums + int(simdgroup) * num_rows * kSimdWidth + int(lane);
  const int num_own = int(simdgroup) < num_simdgroups ? high - low + 1 : 0;
  for (int s = 0; s < num_own; ++s) own[s * kSimdWidth] = 0.0f;
  out_grad += first_row * ulong(D) + ulong(d);
  out += first_row * ulong(D) + ulong(d);
  am_grad += ulong(b) * ulong(T) * ulong(D) + ulong(d);
  const int end = to * R;
  float frame_sum = 0.0f;
  int frame = from, left = R;
  for (int first = from * R; first < end; first += kAtOnce) {
    float value[kAtOnce];
    int at[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = min(first + i, end - 1);
      const long s = ranges[row];
      at[i] = params.has_lm_grad && s >= low && s <= high ? int(s) - low : -1;
      const bool is_read = is_column && (needs_am || at[i] >= 0);
      value[i] = is_read ? float(out_grad[ulong(row) * ulong(D)]) : 0.0f;
      if (kTanh && is_read) {
        const float y = float(out[ulong(row) * ulong(D)]);
        value[i] *= 1.0f - y * y;
      }
    }
    for (int i = 0; i < kAtOnce && first + i < end; ++i) {
      if (at[i] >= 0) own[at[i] * kSimdWidth] += value[i];
      frame_sum += value[i];
      if (--left == 0) {
        if (needs_am && is_column)
          am_grad[ulong(frame) * ulong(D)] = Number(frame_sum);
        frame_sum = 0.0f;
        left = R;
        ++frame;
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (!params.has_lm_grad || !is_column) return;
  lm_grad += ulong(b) * ulong(params.S + 1) * ulong(D) + ulong(d);
  for (int s = first_s + int(simdgroup); s < end_s; s += kSimdgroups) {
    float sum = 0.0f;
    for (int i = 0; i < num_simdgroups; ++i) {
      if (s < lowest[i] || s > highest[i]) continue;
      sum += sums[(i * num_rows + s - lowest[i]) * kSimdWidth + int(lane)];
    }
    lm_grad[ulong(s) * ulong(D)] = Number(sum);
  }
}

#define K2_INSTANCE(name, kernel_name, Type, tanh) \
  template [[host_name(name)]] [[kernel]]          \
  decltype(kernel_name<Type, tanh>) kernel_name<Type, tanh>;
#define K2_INSTANCES(suffix, Type)                                            \
  K2_INSTANCE("rnnt_prune" suffix, rnnt_prune, Type, false)                   \
  K2_INSTANCE("rnnt_joiner_input" suffix, rnnt_prune, Type, true)             \
  K2_INSTANCE("rnnt_prune_backward" suffix, rnnt_prune_backward, Type, false) \
  K2_INSTANCE("rnnt_joiner_input_backward" suffix, rnnt_prune_backward, Type, \
              true)

K2_INSTANCES("", float)
K2_INSTANCES("_half", half)
K2_INSTANCES("_bfloat", bfloat)
