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
#include "k2/csrc/mps/kernels/simd_width.h"

// The kernels of get_rnnt_prune_ranges() and do_rnnt_pruning(), and kernels
// that compute a joiner's input, tanh(am + lm), from pruned am and lm.

using namespace metal;

constant int kNoBegin = 1 << 30;  // greater than the start of any range

// Replaces values[t * stride] by step * t - max(low, m), for t from `from` to
// `to` - 1.  m is the smallest of the values from t on, including the values of
// later threads: each thread processes a part of the values, and the parts are
// consecutive.  `least` has an element for each simdgroup.
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
// There is a threadgroup of kRnntPruningRangesThreads for each sequence.
[[max_total_threads_per_threadgroup(kRnntPruningRangesThreads)]]
kernel void rnnt_prune_ranges(
    device const float *px_grad [[buffer(kRnntPruningPxGrad)]],
    device const float *py_grad [[buffer(kRnntPruningPyGrad)]],
    device const long *boundary [[buffer(kRnntPruningBoundary)]],
    device long *ranges [[buffer(kRnntPruningRanges)]],
    constant RnntRangesParams &params [[buffer(kRnntPruningParams)]],
    uint b [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup int least[kRnntPruningRangesThreads / kSimdWidth];
  const int S = params.S, T = params.T, R = params.R,
            columns = params.px_columns;
  const long s_end = boundary[4 * long(b) + 2],
             t_end = boundary[4 * long(b) + 3];
  px_grad += ulong(b) * ulong(S) * ulong(columns);
  py_grad += ulong(b) * ulong(S + 1) * ulong(T);
  ranges += ulong(b) * ulong(T) * ulong(R);
  // Finds for each frame the range with the largest sum of gradients.  If
  // several sums are equal, the first range is taken.
  for (int t = int(thread_index); t < T; t += kRnntPruningRangesThreads) {
    long best = max(s_end - R + 1, 0L);
    if (t < t_end - 1) {
      float most = -INFINITY;
      best = 0;
      for (int s = 0; s + R <= S + 1; ++s) {
        float sum = 0.0f;
        for (int j = 0; j < R; ++j) sum += py_grad[long(s + j) * T + t];
        if (s != 0) sum -= px_grad[long(s - 1) * columns + t];
        // Takes the element that torch.argmax() takes, also for NaN.
        if (!(sum <= most) && !isnan(most)) {
          most = sum;
          best = s;
        }
      }
    }
    ranges[long(t) * R] = best;
  }
  threadgroup_barrier(mem_flags::mem_device);
  // Does what _adjust_pruning_lower_bound() of rnnt_loss.py does.  After this,
  // the first range begins with 0.  From frame to frame, the start of a range
  // does not fall, and rises by at most most_step.  Each thread works on its
  // own frames.
  const int part =
                (T + kRnntPruningRangesThreads - 1) / kRnntPruningRangesThreads,
            from = min(int(thread_index) * part, T), to = min(from + part, T),
            num_simdgroups = kRnntPruningRangesThreads / kSimdWidth;
  SubtractLowerBounds(ranges, R, from, to, params.most_step, -kNoBegin, least,
                      int(simdgroup), int(lane), num_simdgroups);
  SubtractLowerBounds(ranges, R, from, to, params.most_step, 0, least,
                      int(simdgroup), int(lane), num_simdgroups);
  for (int t = from; t < to; ++t) {
    const long begin = ranges[long(t) * R];
    for (int j = 1; j < R; ++j) ranges[long(t) * R + j] = begin + j;
  }
}

// am       [B][T][D]; only rnnt_joiner_input reads it
// lm       [B][S + 1][D]
// ranges   [B][T][R]
// out      [B][T][R][D], gets rows of lm, or tanh(am + lm).  If an element of
//          `ranges` is not a row of lm, the row of `out` is NaN
//
// There is a simdgroup for each row of `out`.
template <typename Number, bool kTanh>
[[max_total_threads_per_threadgroup(kRnntPruningRowThreads)]]
kernel void rnnt_prune(device const Number *am [[buffer(kRnntPruningAm)]],
                       device const Number *lm [[buffer(kRnntPruningLm)]],
                       device const long *ranges [[buffer(kRnntPruningRanges)]],
                       device Number *out [[buffer(kRnntPruningOut)]],
                       constant RnntPruningParams &params
                       [[buffer(kRnntPruningParams)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  // An int can count all rows.  These are uint, because a GPU takes hundreds of
  // instructions to divide a ulong.
  const uint number =
                 group * uint(kRnntPruningRowThreads / kSimdWidth) + simdgroup,
             frame = number / uint(params.R), b = frame / uint(params.T);
  if (frame >= uint(params.B) * uint(params.T)) return;
  const ulong row = number, D = ulong(params.D);
  const long at = ranges[row];
  const bool is_valid = at >= 0 && at <= params.S;
  lm += (ulong(b) * ulong(params.S + 1) + ulong(is_valid ? at : 0)) * D;
  am += ulong(frame) * D;
  out += row * D;
  for (ulong d = lane; d < D; d += kSimdWidth) {
    const Number value =
        kTanh ? Number(precise::tanh(float(am[d]) + float(lm[d]))) : lm[d];
    out[d] = is_valid ? value : Number(NAN);
  }
}

// Returns the gradient of an element of `out`.  If kTanh, returns the gradient
// of the input of tanh() instead.
template <typename Number, bool kTanh>
inline float GradOf(device const Number *out_grad, device const Number *out,
                    ulong at) {
  const float value = float(out_grad[at]);
  if (!kTanh) return value;
  const float y = float(out[at]);
  return value * (1.0f - y * y);
}

// Finds the rows with position s among rows `first` to `end` - 1 of a sequence.
// Writes these rows into `found`, in order, and returns the number of these
// rows.  All threads of the threadgroup call this function.  The callers need
// no barrier before or after the call.
inline int FindRows(device const long *ranges, int first, int end,  // NOLINT
                    int s, threadgroup int *found, threadgroup int *counts,
                    int thread_index, int simdgroup, int lane) {
  constexpr int kEach = kRnntPruningFound / kRnntPruningBackwardThreads;
  const int begin = first + thread_index * kEach;
  int count = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    count += begin + i < end && ranges[begin + i] == s ? 1 : 0;
  int place = simd_prefix_exclusive_sum(count);
  const int of_simdgroup = simd_sum(count);
  if (lane == 0) counts[simdgroup] = of_simdgroup;
  // Until here, other threads may read the rows that the previous search found.
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int total = 0;
  for (int i = 0; i < kRnntPruningBackwardThreads / kSimdWidth; ++i) {
    if (i < simdgroup) place += counts[i];
    total += counts[i];
  }
  for (int i = 0; i < kEach; ++i)
    if (begin + i < end && ranges[begin + i] == s) found[place++] = begin + i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return total;
}

// One simdgroup adds up the gradients of a frame's rows.  `frame` is the index
// among the frames of all sequences.
template <typename Number, bool kTanh>
METAL_FUNC void AddRowsOfFrame(device const Number *out_grad,
                               device const Number *out,
                               constant RnntPruningParams &params, ulong frame,
                               uint lane, device Number *am_grad) {
  const ulong R = ulong(params.R), D = ulong(params.D);
  for (ulong d = lane; d < D; d += kSimdWidth) {
    float sum = 0.0f;
    for (ulong j = 0; j < R; ++j)
      sum += GradOf<Number, kTanh>(out_grad, out, (frame * R + j) * D + d);
    am_grad[frame * D + d] = Number(sum);
  }
}

// The threadgroup adds up the gradients of the rows that have a position.
// `position` is the index among the positions of all sequences.  Each thread
// adds up two columns at a time, in the order of the rows.
//
// found, counts   memory for FindRows()
template <typename Number, bool kTanh>
METAL_FUNC void AddRowsOfPosition(
    device const Number *out_grad, device const Number *out,
    device const long *ranges, constant RnntPruningParams &params, int position,
    uint thread_index, uint simdgroup, uint lane, threadgroup int *found,
    threadgroup int *counts, device Number *lm_grad) {
  // The number of rows that a thread loads at once.  If one position has most
  // rows of a sequence, few threadgroups have most of the work.  To be fast,
  // each of these threadgroups must do many loads at the same time.
  constexpr int kAtOnce = 16;
  const ulong D = ulong(params.D);
  const int num_rows = params.T * params.R,  // of a sequence
      num_positions = params.S + 1, b = position / num_positions,
            s = position % num_positions;
  const ulong first_row = ulong(b) * ulong(params.T) * ulong(params.R);
  for (ulong begin = 0; begin < D; begin += 2 * kRnntPruningBackwardThreads) {
    const ulong column1 = begin + thread_index,
                column2 = column1 + kRnntPruningBackwardThreads;
    float sum1 = 0.0f, sum2 = 0.0f;
    for (int row = 0; row < num_rows; row += kRnntPruningFound) {
      const int num_found = FindRows(
          ranges + first_row, row, min(row + kRnntPruningFound, num_rows), s,
          found, counts, int(thread_index), int(simdgroup), int(lane));
      for (int i = 0; i < num_found; i += kAtOnce) {
        // There is no branch: if a row or column does not exist, the last one
        // is loaded instead, and is not added.
        float grads1[kAtOnce], grads2[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const ulong at =
              (first_row + ulong(found[min(i + j, num_found - 1)])) * D;
          grads1[j] =
              GradOf<Number, kTanh>(out_grad, out, at + min(column1, D - 1));
          grads2[j] =
              GradOf<Number, kTanh>(out_grad, out, at + min(column2, D - 1));
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          sum1 += i + j < num_found ? grads1[j] : 0.0f;
          sum2 += i + j < num_found ? grads2[j] : 0.0f;
        }
      }
    }
    device Number *grads = lm_grad + ulong(position) * D;
    if (column1 < D) grads[column1] = Number(sum1);
    if (column2 < D) grads[column2] = Number(sum2);
  }
}

// out_grad  [B][T][R][D], the gradient of rnnt_prune's output
// out       the output of rnnt_prune; read if kTanh
// ranges    [B][T][R]
// am_grad   [B][T][D], gets the sum of GradOf() over the rows of each frame
// lm_grad   [B][S + 1][D], gets the sum of GradOf() over the rows of each
//           position
//
// If params.has_lm_grad, there is a threadgroup for each position of each
// sequence.  If params.has_am_grad, there are further threadgroups.  Each of
// their simdgroups processes one frame.
template <typename Number, bool kTanh>
[[max_total_threads_per_threadgroup(kRnntPruningBackwardThreads)]]
kernel void rnnt_prune_backward(
    device const Number *out_grad [[buffer(kRnntPruningOutGrad)]],
    device const Number *out [[buffer(kRnntPruningOut)]],
    device const long *ranges [[buffer(kRnntPruningRanges)]],
    device Number *am_grad [[buffer(kRnntPruningAmGrad)]],
    device Number *lm_grad [[buffer(kRnntPruningLmGrad)]],
    constant RnntPruningParams &params [[buffer(kRnntPruningParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr int kSimdgroups = kRnntPruningBackwardThreads / kSimdWidth;
  threadgroup int found[kRnntPruningFound], counts[kSimdgroups];
  const long num_positions =
      params.has_lm_grad ? long(params.B) * (params.S + 1) : 0;  // NOLINT
  if (long(group) < num_positions) {                             // NOLINT
    AddRowsOfPosition<Number, kTanh>(out_grad, out, ranges, params, int(group),
                                     thread_index, simdgroup, lane, found,
                                     counts, lm_grad);
    return;
  }
  const ulong frame =
      (ulong(group) - ulong(num_positions)) * kSimdgroups + simdgroup;
  if (frame < ulong(params.B) * ulong(params.T))
    AddRowsOfFrame<Number, kTanh>(out_grad, out, params, frame, lane, am_grad);
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
