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

#ifndef K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_FORWARD_H_
#define K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_FORWARD_H_

#include "k2/csrc/mps/kernels/mutual_information_rounds.h"

// For kernels only: the forward direction.

enum {
  // m at most doubles in a step, and a float has room for 127 doublings.
  kChunksToNormalize = 32 / kMiColumns,
};

// Stands for -infinity in the recursion, where -infinity would make NaN.  Sums
// with kNever stay finite, and no usual input changes kNever.
constant float kNever = -1.0e30f;
// A score below this is -infinity, or a sum of very large inputs: the recursion
// by diagonals finds out.
constant float kLowestScore = -5.0e29f;
// An input is unusual if it is larger, or NaN.
constant float kLargestInput = 1.0e20f;

constant float kLog2 = 0.69314718055994531f;

// A score r + log(m), where r is the score of the best path, and m is the sum
// of all paths relative to the best one.  In this form a cell waits for an
// addition, a maximum and an fma() of the cell before, but for no exp() and no
// log().
struct alignas(8) Score {
  float r, m;
};

// Moves powers of two from m, which is positive, to r.
inline Score Normalize(Score score) {
  const int exponent = static_cast<int>(as_type<uint>(score.m) >> 23) - 127;
  return Score{metal::fma(static_cast<float>(exponent), kLog2, score.r),
               as_type<float>(as_type<uint>(score.m) - (uint(exponent) << 23))};
}

// One sequence.  The pointers point to the elements of its first cell.
//
// A chain reads x and y of each cell from its tiles.  It writes there the sum
// of the paths from the row above, and the sum of all paths, both relative to
// r.
template <typename Input>
struct Forward {
  using Entry = Score;
  using State = Score;
  enum { kTwoInputs = 1 };

  device const Input *px, *py;
  device float *p;
  device float *ans;
  int px_stride, py_stride, p_stride;
  uint last_px, last_py;  // indexes of the last elements
  // The elements that this lane moves: the index of the first one in chunk 0,
  // and the distance from one to the next.
  int px_begin, py_begin, px_apart, py_apart;
  threadgroup metal::atomic_uint *unusual;
  // The inputs that Load() has loaded.
  Input x[kMoves], y[kMoves];
  Score above;

  static Score Nothing() { return Score{kNever, 1.0f}; }
  static Score Start() { return Nothing(); }
  static Score ToBelow(Score state) { return state; }
  static Score FromLaneAbove(Score state) {
    return Score{metal::simd_shuffle_up(state.r, 1),
                 metal::simd_shuffle_up(state.m, 1)};
  }
  Score Origin() const { return Score{0.0f, 1.0f}; }

  void SetUp(constant MutualInformationParams &params, Boundary range,
             Schedule schedule, Elements elements) {
    px_stride = params.T + 1 + params.t_offset;
    py_stride = params.T;
    p_stride = params.T + 1;
    // If the range is empty, clamped indexes must still lie in px and py.
    px += metal::min(range.s_begin, metal::max(params.S - 1, 0)) * px_stride +
          metal::min(range.t_begin, metal::max(px_stride - 1, 0));
    py += range.s_begin * py_stride +
          metal::min(range.t_begin, metal::max(py_stride - 1, 0));
    p += range.s_begin * p_stride + range.t_begin;
    last_px = uint(metal::max(schedule.S - 1, 0) * px_stride +
                   metal::max(schedule.T + schedule.t_offset, 0));
    last_py = uint(schedule.S * py_stride + metal::max(schedule.T - 1, 0));
    px_begin = (elements.row - 1) * px_stride + elements.t + schedule.t_offset;
    py_begin = elements.row * py_stride + elements.t - 1;
    px_apart = kRowsApart * (px_stride - schedule.skew);
    py_apart = kRowsApart * (py_stride - schedule.skew);
#pragma unroll
    for (int i = 0; i < kMoves; ++i) x[i] = y[i] = Input(0.0f);
    above = Nothing();
  }

  // Where there is no cell, a lane loads some other element of the sequence. No
  // cell depends on it: what comes from before the first row or column is lost
  // in kNever.
  Input LoadX(int step, int i) const {
    return px[metal::min(uint(px_begin + step + i * px_apart), last_px)];
  }
  Input LoadY(int step, int i) const {
    return py[metal::min(uint(py_begin + step + i * py_apart), last_py)];
  }

  void Load(int step) {
#pragma unroll
    for (int i = 0; i < kMoves; ++i) {
      x[i] = LoadX(step, i);
      y[i] = LoadY(step, i);
    }
  }

  void Place(Schedule schedule, Elements elements, int step,
             threadgroup float *tiles) const {
    threadgroup float *x_tile = tiles + elements.at,
                      *y_tile = x_tile + 4 * kTile;
    bool usual = true;
#pragma unroll
    for (int i = 0; i < kMoves; ++i) {
      // & has no branch, unlike &&.
      const float this_x = static_cast<float>(x[i]),
                  this_y = static_cast<float>(y[i]);
      usual = usual & (this_x <= kLargestInput) & (this_y <= kLargestInput);
      x_tile[4 * i * kRowsApart] = metal::max(this_x, kNever);
      y_tile[4 * i * kRowsApart] = metal::max(this_y, kNever);
    }
    if (!usual) TellUnusual(schedule, elements, step, tiles);
    // The first row gets the entries of its ring as they are.
    if (elements.row == 0) *x_tile = 0.0f;
  }

  // Sets `unusual` if an unusual input belongs to a cell.  If there is no cell,
  // keeps the input away from other cells.
  void TellUnusual(Schedule schedule, Elements elements, int step,
                   threadgroup float *tiles) const {
    const int t_offset = schedule.t_offset;
#pragma unroll 1
    for (int i = 0; i < kMoves; ++i) {
      const int row = elements.row + i * kRowsApart,
                t = elements.t + step - i * kRowsApart * schedule.skew;
      const bool exists = row <= schedule.S && t <= schedule.T;
      threadgroup float *tile = tiles + elements.at + 4 * i * kRowsApart;
      if (!(static_cast<float>(LoadX(step, i)) <= kLargestInput)) {
        if (exists && row > 0 && t + t_offset >= 0)
          metal::atomic_store_explicit(unusual, 1u,
                                       metal::memory_order_relaxed);
        else
          tile[0] = kNever;
      }
      if (!(static_cast<float>(LoadY(step, i)) <= kLargestInput)) {
        if (exists && t > 0)
          metal::atomic_store_explicit(unusual, 1u,
                                       metal::memory_order_relaxed);
        else
          tile[4 * kTile] = kNever;
      }
    }
  }

  // Computes score[s][t] from x = px[s - 1][t + o] and y = py[s][t - 1].
  static void Step(Score above, thread float &x, thread float &y,
                   thread Score &state) {
    const float from_above = above.r + x, from_left = state.r + y,
                diff = from_above - from_left,
                ratio = metal::fast::exp(-metal::abs(diff));
    const bool above_is_larger = diff > 0.0f;
    x = above.m * (above_is_larger ? 1.0f : ratio);
    state.r = metal::max(from_above, from_left);  // NOLINT
    state.m = metal::fma(state.m, above_is_larger ? ratio : 1.0f, x);
    y = state.m;
  }

  void EndChunk(Schedule schedule, Thread me, int chunk,
                thread Score &state) const {
    if (chunk == schedule.end_chunk &&
        schedule.first_row + me.strip * kMiRows + me.lane == schedule.S) {
      const float score = state.r + metal::precise::log(state.m);
      *ans = score;
      if (!(score >= kLowestScore))
        metal::atomic_store_explicit(unusual, 1u, metal::memory_order_relaxed);
    }
    if (chunk % kChunksToNormalize == kChunksToNormalize - 1)
      state = Normalize(state);
  }

  // Stores shares.
  void Drain(Schedule schedule, Elements elements, int step,
             threadgroup const float *tiles) const {
    const int apart = kRowsApart * (p_stride - schedule.skew);
    tiles += elements.at;
    device float *out = p + elements.row * p_stride + elements.t + step;
#pragma unroll
    for (int i = 0; i < kMoves; ++i) {
      const int row = elements.row + i * kRowsApart,
                t = elements.t + step - i * kRowsApart * schedule.skew;
      const float part = tiles[4 * i * kRowsApart],
                  all = tiles[4 * (kTile + i * kRowsApart)];
      // The share is exactly 1 here, whatever fast::divide() returns.
      const float share = part == all ? 1.0f : metal::fast::divide(part, all);
      if (row <= schedule.S && uint(t) <= uint(schedule.T))
        out[i * apart] = share;
    }
  }
};

#endif  // K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_FORWARD_H_
