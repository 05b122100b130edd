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

#include "k2/csrc/mps/kernels/log_add.h"
#include "k2/csrc/mps/kernels/rnnt_pruned.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// The kernels of rnnt_loss_pruned() and rnnt_loss(), except the recursion,
// which is in mutual_information.metal.
//
// Row j of a frame has the logits at position s = begin + j of the symbols,
// where begin is ranges[b][t][0].  With the normalizer z = log(sum(exp(row))),
//
//   px[s][t] = row[symbol] - z,  py[s][t] = row[blank] - z.
//
// At positions without a row, px and py are -infinity.  HAT (E. Variani et al.,
// Hybrid Autoregressive Transducer, 2020) leaves the blank out of z:
//
//   py[s][t] = log(sigmoid(row[blank])),
//   px[s][t] = row[symbol] - z + log(sigmoid(-row[blank])).
//
// Rows outside of the sequence's boundary are not read.  If a symbol or a range
// of a sequence is wrong, the sequence's loss and gradient are NaN.

using namespace metal;

constant int kSimdgroups = kRpThreads / kSimdWidth;
// The number of elements of a row that a lane loads at once.
constant int kUnroll = 4;

struct Bounds {
  int s_begin, t_begin, s_end, t_end;
};

inline Bounds GetBounds(constant RnntPrunedParams &params,
                        device const long *boundary, int b) {  // NOLINT
  if (!params.has_boundary) return Bounds{0, 0, params.S, params.T};
  boundary += 4 * long(b);
  return Bounds{int(boundary[0]), int(boundary[1]), int(boundary[2]),
                int(boundary[3])};
}

// One row of logits.
struct Row {
  int s;           // its position
  int symbol;      // the symbol at the position; blank if there is none
  bool is_inside;  // whether the row is inside of the boundary
};

// Returns whether all symbols of a sequence are in {0..C-1}, and the positions
// of each frame are in {0..S} and ascend by 1.  All threads of a threadgroup
// call this function.
inline bool IsValid(constant RnntPrunedParams &params,
                    device const long *symbols,  // NOLINT
                    device const long *ranges, int b, int thread_index,
                    threadgroup int *wrong) {
  const int S = params.S, R = params.R;
  int own = 0;
  symbols += ulong(b) * ulong(S);
  for (int i = thread_index; i < S; i += kRpThreads)
    own |= symbols[i] < 0 || symbols[i] >= params.C;
  if (params.has_ranges) {
    ranges += ulong(b) * ulong(params.T) * ulong(R);
    for (int i = thread_index; i < params.T * R; i += kRpThreads) {
      const int j = i % R;
      const long begin = ranges[i - j];
      own |= begin < 0 || begin > S + 1 - R || ranges[i] != begin + j;
    }
  }
  own = simd_max(own);
  if (thread_index % kSimdWidth == 0) wrong[thread_index / kSimdWidth] = own;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = 0; i < kSimdgroups; ++i) own |= wrong[i];
  return own == 0;
}

// Returns row j of frame t of sequence b.  `row` is the index of this row among
// all rows.
inline Row GetRow(constant RnntPrunedParams &params,
                  device const long *symbols,  // NOLINT
                  device const long *ranges, Bounds bounds, ulong row, int b,
                  int t, int j) {
  const int S = params.S;
  long s = j;
  if (params.has_ranges) s += ranges[row - ulong(j)];
  Row ans;
  ans.is_inside = s >= bounds.s_begin && s <= bounds.s_end &&
                  t >= bounds.t_begin && t < bounds.t_end;
  ans.s = ans.is_inside ? int(s) : 0;
  ans.symbol = params.blank;
  if (ans.is_inside && s < S) {
    const long symbol = symbols[ulong(b) * ulong(S) + ulong(s)];
    if (symbol >= 0 && symbol < params.C) ans.symbol = int(symbol);
  }
  return ans;
}

// Returns what to subtract before exp(): `largest`, or 0 if `largest` is not
// finite.
inline float Base(float largest) {
  return largest - largest == 0.0f ? largest : 0.0f;
}

// Returns log(sum(exp(row))) in all lanes of a simdgroup.  The simdgroup reads
// the row once.  If `without` >= 0, leaves out the element with this index.
template <typename Input>
inline float LogSumExp(device const Input *row, int size, int without,
                       int lane) {
  float largest = -INFINITY, sum = 0.0f;
  for (int first = lane; first < size; first += kUnroll * kSimdWidth) {
    float x[kUnroll], most = largest;
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int c = first + i * kSimdWidth;
      x[i] = c < size && c != without ? float(row[c]) : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) most = max(most, x[i]);
    const float base = Base(most);
    sum *= fast::exp(largest - base);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) sum += fast::exp(x[i] - base);
    largest = most;
  }
  const float base = Base(simd_max(largest));
  return base + precise::log(simd_sum(sum * fast::exp(largest - base)));
}

// Returns log(sigmoid(x)).
inline float LogSigmoid(float x) {
  return min(x, 0.0f) - Log1p(precise::exp(-abs(x)));
}

// logits     [B][T][R][C], of float, half or bfloat
// symbols    [B][S]
// ranges     [B][T][R]; not read if !params.has_ranges
// boundary   [B][4]: s_begin, t_begin, s_end, t_end; not read if
//            !params.has_boundary
// lse        [B][T][R], gets z of each row inside of the boundary
// px         [B][S][px_columns], is written
// py         [B][S + 1][T], is written
// ones       [B], gets 1, the gradient of each score, from which the backward
//            pass of the recursion starts; gets NaN for a wrong sequence, see
//            IsValid()
//
// A threadgroup has kRpThreads threads and computes up to kRpFrames frames of a
// sequence.  A simdgroup computes a row at a time.
template <typename Input>
[[max_total_threads_per_threadgroup(kRpThreads)]]
kernel void rnnt_pruned_forward(
    device const Input *logits [[buffer(kRpLogits)]],
    device const long *symbols [[buffer(kRpSymbols)]],
    device const long *ranges [[buffer(kRpRanges)]],
    device const long *boundary [[buffer(kRpBoundary)]],
    device float *lse [[buffer(kRpLse)]], device float *px [[buffer(kRpPx)]],
    device float *py [[buffer(kRpPy)]], device float *ones [[buffer(kRpOnes)]],
    constant RnntPrunedParams &params [[buffer(kRpParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float row_px[kRpFrames * kRpRows], row_py[kRpFrames * kRpRows];
  threadgroup int wrong[kSimdgroups];
  const int S = params.S, T = params.T, R = params.R,
            num_tiles = (T + kRpFrames - 1) / kRpFrames,
            b = int(group) / num_tiles,
            first_frame = int(group) % num_tiles * kRpFrames,
            num_frames = min(int(kRpFrames), T - first_frame),
            num_cells = (S + 1) * kRpFrames;
  const Bounds bounds = GetBounds(params, boundary, b);
  const ulong first_row = (ulong(b) * ulong(T) + ulong(first_frame)) * ulong(R);
  px += ulong(b) * ulong(S) * ulong(params.px_columns);
  py += ulong(b) * ulong(S + 1) * ulong(T);

  // The threadgroup of the first frame in the boundary checks the sequence. All
  // paths go through this frame, so a NaN in its scores makes the loss NaN.
  float valid = 1.0f;
  if (min(bounds.t_begin, T - 1) / kRpFrames == first_frame / kRpFrames) {
    if (!IsValid(params, symbols, ranges, b, int(thread_index), wrong))
      valid = NAN;
    if (thread_index == 0) ones[b] = valid;
  }
  for (int first = 0; first < R; first += kRpRows) {
    const int num_rows = min(R - first, int(kRpRows));
    for (int i = int(simdgroup); i < num_frames * num_rows; i += kSimdgroups) {
      const int frame = i / num_rows, j = i % num_rows, t = first_frame + frame;
      const ulong index = first_row + ulong(frame * R + first + j);
      const Row row =
          GetRow(params, symbols, ranges, bounds, index, b, t, first + j);
      float x = -INFINITY, y = -INFINITY;
      if (row.is_inside) {
        device const Input *from = logits + index * ulong(params.C);
        const float z = LogSumExp(from, params.C,
                                  params.hat ? params.blank : -1, int(lane)),
                    blank = float(from[params.blank]);
        x = float(from[row.symbol]) - z;
        y = blank - z;
        if (params.hat) {
          x += LogSigmoid(-blank);
          y = LogSigmoid(blank);
        }
        if (lane == 0) lse[index] = z;
      }
      if (lane == 0) {
        row_px[frame * kRpRows + j] = x;
        row_py[frame * kRpRows + j] = y;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = int(thread_index); i < num_cells; i += kRpThreads) {
      const int s = i / kRpFrames, frame = i % kRpFrames,
                t = first_frame + frame;
      if (frame >= num_frames) continue;
      long j = s;
      if (params.has_ranges) j -= ranges[first_row + ulong(frame * R)];
      const bool has_row = j >= 0 && j < R;
      // The pass with first == 0 also writes the positions without a row.
      const bool is_of_pass =
          has_row ? j >= first && j < first + num_rows : first == 0;
      if (!is_of_pass) continue;
      const int at = frame * kRpRows + (has_row ? int(j) - first : 0);
      py[long(s) * T + t] = valid * (has_row ? row_py[at] : -INFINITY);
      if (s < S)
        px[long(s) * params.px_columns + t] =
            valid * (has_row ? row_px[at] : -INFINITY) +
            params.delay_penalty * (0.5f * float(bounds.t_end - 1) - float(t));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }
  if (params.constrained) {
    for (int i = int(thread_index); i < S * kRpFrames; i += kRpThreads) {
      const int s = i / kRpFrames, t = first_frame + i % kRpFrames;
      if (t < T) px[long(s) * params.px_columns + t] += py[long(s + 1) * T + t];
    }
  }
  if (params.px_columns > T && first_frame + kRpFrames >= T)
    for (int s = int(thread_index); s < S; s += kRpThreads)
      px[long(s) * params.px_columns + T] = -INFINITY;
}

// Writes the losses.  All lanes of a simdgroup call this function.
inline void Reduce(device const float *scores, device float *loss,
                   constant RnntReduceParams &params, int lane) {
  float sum = 0.0f;
  for (int b = lane; b < params.B; b += kSimdWidth) {
    if (params.sums)
      sum += scores[b];
    else
      loss[b] = -scores[b];
  }
  sum = simd_sum(sum);
  if (params.sums && lane == 0) loss[0] = -sum / params.divisor;
}

// symbols, ranges, boundary   as for rnnt_pruned_forward
// px_grad, py_grad   the gradients of px and py, of the shapes of px and py;
//                    read only inside of the boundary
// ones               what rnnt_pruned_forward wrote
// row_grads          [B][T][R], gets the gradients of px and py for each row, 0
//                    outside of the boundary, and NaN for a wrong sequence
// scores, loss       as for rnnt_reduce; the first simdgroup also does the work
//                    of that kernel
//
// There is a thread for each row.
[[max_total_threads_per_threadgroup(kRpThreads)]]
kernel void rnnt_pruned_rows(device const long *symbols [[buffer(kRpSymbols)]],
                             device const long *ranges [[buffer(kRpRanges)]],
                             device const long *boundary
                             [[buffer(kRpBoundary)]],
                             device const float *px_grad [[buffer(kRpPxGrad)]],
                             device const float *py_grad [[buffer(kRpPyGrad)]],
                             device const float *ones [[buffer(kRpOnes)]],
                             device float2 *row_grads [[buffer(kRpRowGrads)]],
                             device const float *scores [[buffer(kRpScores)]],
                             device float *loss [[buffer(kRpLoss)]],
                             constant RnntPrunedParams &params
                             [[buffer(kRpParams)]],
                             constant RnntReduceParams &reduce
                             [[buffer(kRpReduce)]],
                             uint index [[thread_position_in_grid]]) {
  if (index < kSimdWidth) Reduce(scores, loss, reduce, int(index));
  const int S = params.S, T = params.T, R = params.R;
  if (index >= uint(params.B) * uint(T) * uint(R)) return;
  const int b = int(index / uint(R) / uint(T)), t = int(index / uint(R)) % T,
            j = int(index % uint(R));
  const Bounds bounds = GetBounds(params, boundary, b);
  const Row row = GetRow(params, symbols, ranges, bounds, index, b, t, j);
  float x = 0.0f, y = 0.0f;
  if (row.is_inside) {
    px_grad += ulong(b) * ulong(S) * ulong(params.px_columns) + ulong(t);
    py_grad += ulong(b) * ulong(S + 1) * ulong(T) + ulong(t);
    if (row.s < bounds.s_end) x = px_grad[long(row.s) * params.px_columns];
    y = py_grad[long(row.s) * T];
    // In the constrained loss, px includes the blank at the next position.
    if (params.constrained && row.s > bounds.s_begin)
      y += px_grad[long(row.s - 1) * params.px_columns];
  }
  row_grads[index] = ones[b] * float2(x, y);
}

// logits, symbols, ranges, boundary, lse, row_grads   as for the other kernels
// loss_grad   [B], or one element; see RnntPrunedParams
// grad        gets the gradient of logits; has the shape and type of logits,
//             and may be `logits` itself
//
// There is a simdgroup for each row.
template <typename Input>
[[max_total_threads_per_threadgroup(kRpThreads)]]
kernel void rnnt_pruned_backward(
    device const Input *logits [[buffer(kRpLogits)]],
    device const long *symbols [[buffer(kRpSymbols)]],
    device const long *ranges [[buffer(kRpRanges)]],
    device const long *boundary [[buffer(kRpBoundary)]],
    device const float *lse [[buffer(kRpLse)]],
    device const float2 *row_grads [[buffer(kRpRowGrads)]],
    device const float *loss_grad [[buffer(kRpLossGrad)]],
    device Input *grad [[buffer(kRpGrad)]],
    constant RnntPrunedParams &params [[buffer(kRpParams)]],
    uint group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const int T = params.T, R = params.R, C = params.C;
  // An int can count all rows.  These are uint, because a GPU takes hundreds of
  // instructions to divide a ulong.
  const uint number = group * uint(kSimdgroups) + simdgroup,
             frame = number / uint(R);
  if (frame >= uint(params.B) * uint(T)) return;
  const int b = int(frame / uint(T)), t = int(frame % uint(T)),
            j = int(number % uint(R));
  const ulong index = number;
  const Bounds bounds = GetBounds(params, boundary, b);
  const Row row = GetRow(params, symbols, ranges, bounds, index, b, t, j);
  // The gradients of the row's px and py.
  float x = row_grads[index].x, y = row_grads[index].y, z = 0.0f;
  if (row.is_inside) {
    const float scale =
        params.loss_scale * loss_grad[long(b) * params.loss_stride];
    x *= scale;
    y *= scale;
    z = lse[index];
  }
  const float total = params.hat ? x : x + y;
  float at_blank = y;
  if (params.hat) {
    const float p =
        row.is_inside
            ? 1.0f /
                  (1.0f + precise::exp(-float(
                              logits[index * ulong(C) + ulong(params.blank)])))
            : 0.0f;
    at_blank = y * (1.0f - p) - x * p;
  }
  // As on the CPU, the gradient of a row without finite z is NaN, even if no
  // path goes through the row.
  const bool reads_row = total != 0.0f || !(z < INFINITY);
  logits += index * ulong(C);
  grad += index * ulong(C);
  // `grad` may be `logits`.  Below, a lane reads only the elements that it
  // writes itself.  But above, all lanes read the logit of the blank, so the
  // barrier is needed.
  simdgroup_barrier(mem_flags::mem_device);
  for (int first = int(lane); first < C; first += kUnroll * kSimdWidth) {
    float value[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int c = first + i * kSimdWidth;
      const bool is_read =
          c < C && reads_row && !(params.hat && c == params.blank);
      value[i] = is_read ? -total * fast::exp(float(logits[c]) - z) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int c = first + i * kSimdWidth;
      if (c == row.symbol) value[i] += x;
      if (c == params.blank) value[i] += at_blank;
      if (c < C) grad[c] = Input(value[i]);
    }
  }
}

// scores   [B]
// loss     [B], gets the negated scores.  If params.sums, has one element, and
//          gets the sum of the negated scores divided by params.divisor
//
// There is one threadgroup of one simdgroup.
[[max_total_threads_per_threadgroup(kSimdWidth)]]
kernel void rnnt_reduce(device const float *scores [[buffer(kRpScores)]],
                        device float *loss [[buffer(kRpLoss)]],
                        constant RnntReduceParams &params [[buffer(kRpReduce)]],
                        uint lane [[thread_index_in_simdgroup]]) {
  Reduce(scores, loss, params, int(lane));
}

#define K2_INSTANCE(name, kernel_name, Type) \
  template [[host_name(                      \
      name)]] [[kernel]] decltype(kernel_name<Type>) kernel_name<Type>;
#define K2_INSTANCES(kernel_name)                      \
  K2_INSTANCE(#kernel_name, kernel_name, float)        \
  K2_INSTANCE(#kernel_name "_half", kernel_name, half) \
  K2_INSTANCE(#kernel_name "_bfloat", kernel_name, bfloat)

K2_INSTANCES(rnnt_pruned_forward)
K2_INSTANCES(rnnt_pruned_backward)
