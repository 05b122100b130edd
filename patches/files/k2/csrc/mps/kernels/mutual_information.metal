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

#include "k2/csrc/mps/kernels/mutual_information_backward.h"
#include "k2/csrc/mps/kernels/mutual_information_diagonals.h"
#include "k2/csrc/mps/kernels/mutual_information_forward.h"

// MutualInformationMps() and its derivative; mutual_information_schedule.h says
// what they compute and how.

using namespace metal;

// px        [B][S][T + 1 + t_offset], of float, half or bfloat
// py        [B][S + 1][T], of the type of px
// boundary  [B][4]: s_begin, t_begin, s_end, t_end; not read if
//           !params.has_boundary
// p         [B][S + 1][T + 1], written inside of the boundary: the share of
//           each cell, NOT its score.  A share is 1 if t == t_begin, else 0 if
//           s == s_begin.  If the share of the first cell is kNotAllFinite,
//           other shares may be anything; a share that is not finite then gives
//           a gradient of 0.
// ans       [B], the score of s_end, t_end
// scratch   [B][scratch_stride].  For several bands: the last row of a band,
//           [scratch_columns][2], then what a dispatch saves for the next
//           dispatch, [strips of all bands][kMiSavedSize].  At the end, for the
//           recursion by diagonals: [4][S + 1].  If the last element is not 0,
//           the recursion by diagonals does the sequence.
//
// kBands    whether there are several bands; if not, there is one dispatch
//
// A threadgroup has kMiThreadsPerStrip threads for each strip of a band.
template <typename Input, bool kBands>
[[max_total_threads_per_threadgroup(kMiMaxThreads)]]
kernel void mutual_information_forward(
    device const Input *px [[buffer(0)]], device const Input *py [[buffer(1)]],
    device const long *boundary [[buffer(2)]], device float *p [[buffer(3)]],
    device float *ans [[buffer(4)]], device float *scratch [[buffer(5)]],
    constant MutualInformationParams &params [[buffer(6)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  threadgroup float4 tiles[kMiMaxStrips * kStripTiles];
  threadgroup Score rings[(kMiMaxStrips + 1) * kRing];
  threadgroup atomic_uint unusual;

  const Thread me = GetThread(params, group, thread_index, num_threads);
  const ulong b = ulong(me.sequence);
  const Boundary range = GetBoundary(params, boundary, uint(b));
  const Schedule schedule = MakeSchedule<kBands>(params, range, me, true);
  if (schedule.begin >= schedule.end) return;
  if (me.index == 0) atomic_store_explicit(&unusual, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  scratch += b * ulong(params.scratch_stride);
  const Strip<Forward<Input>> strip =
      GetStrip<Forward<Input>>(params, me, schedule, tiles, rings, scratch);
  Forward<Input> sequence;
  sequence.px =
      px + b * ulong(params.S) * ulong(params.T + 1 + params.t_offset);
  sequence.py = py + b * ulong(params.S + 1) * ulong(params.T);
  sequence.p = p + b * ulong(params.S + 1) * ulong(params.T + 1);
  sequence.ans = ans + b;
  sequence.unusual = &unusual;
  sequence.SetUp(params, range, schedule, strip.elements);
  DoRounds<kBands>(strip, sequence);

  bool is_unusual = atomic_load_explicit(&unusual, memory_order_relaxed) != 0u;
  if (kBands) {
    device float *seen = scratch + params.scratch_stride - 1;
    const bool is_first = me.band == 0 && schedule.begin == 0;
    if (me.index == 0 && (is_first || is_unusual))
      *seen = is_unusual ? 1.0f : 0.0f;
    threadgroup_barrier(mem_flags::mem_device);
    // When the last band ends, earlier dispatches have ended all other bands.
    is_unusual = !schedule.has_next && !schedule.continues && *seen != 0.0f;
  }
  if (is_unusual) ForwardByDiagonals(sequence, schedule, me);
}

// boundary, scratch  as for the forward kernel
// p                  what the forward kernel wrote
// ans_grad           [B], the gradient of ans
// px_grad, py_grad   of the shapes and the type of px and py, written inside of
//                    the boundary
template <typename Output, bool kBands>
[[max_total_threads_per_threadgroup(kMiMaxThreads)]]
kernel void mutual_information_backward(
    device const long *boundary [[buffer(0)]],
    device const float *p [[buffer(1)]],
    device const float *ans_grad [[buffer(2)]],
    device Output *px_grad [[buffer(3)]], device Output *py_grad [[buffer(4)]],
    device float *scratch [[buffer(5)]],
    constant MutualInformationParams &params [[buffer(6)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  threadgroup float4 tiles[kMiMaxStrips * kStripTiles];
  threadgroup float rings[(kMiMaxStrips + 1) * kRing];

  const Thread me = GetThread(params, group, thread_index, num_threads);
  const ulong b = ulong(me.sequence);
  const Boundary range = GetBoundary(params, boundary, uint(b));
  const Schedule schedule = MakeSchedule<kBands>(params, range, me, false);
  if (schedule.begin >= schedule.end) return;

  scratch += b * ulong(params.scratch_stride);
  const Strip<Backward<Output>> strip =
      GetStrip<Backward<Output>>(params, me, schedule, tiles, rings, scratch);
  Backward<Output> sequence;
  sequence.p = p + b * ulong(params.S + 1) * ulong(params.T + 1);
  sequence.px_grad =
      px_grad + b * ulong(params.S) * ulong(params.T + 1 + params.t_offset);
  sequence.py_grad = py_grad + b * ulong(params.S + 1) * ulong(params.T);
  sequence.ans_grad = ans_grad[b];
  sequence.SetUp(params, range, schedule, strip.elements);
  DoRounds<kBands>(strip, sequence);

  const bool is_done = !schedule.has_next && !schedule.continues;
  if (is_done && sequence.p[-int(sequence.last_p)] == kNotAllFinite)
    BackwardByDiagonals(sequence, schedule, me,
                        scratch + params.scratch_stride - 4 * (params.S + 1));
}

#define K2_INSTANCES(kernel_name, suffix, Type)                  \
  template[[host_name(#kernel_name suffix)]] [[kernel]]          \
  decltype(kernel_name<Type, false>) kernel_name<Type, false>;   \
  template[[host_name(#kernel_name suffix "_bands")]] [[kernel]] \
  decltype(kernel_name<Type, true>) kernel_name<Type, true>;

K2_INSTANCES(mutual_information_forward, "", float)
K2_INSTANCES(mutual_information_forward, "_half", half)
K2_INSTANCES(mutual_information_forward, "_bfloat", bfloat)
K2_INSTANCES(mutual_information_backward, "", float)
K2_INSTANCES(mutual_information_backward, "_half", half)
K2_INSTANCES(mutual_information_backward, "_bfloat", bfloat)
