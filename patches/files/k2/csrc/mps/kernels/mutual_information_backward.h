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

#ifndef K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_BACKWARD_H_
#define K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_BACKWARD_H_

#include "k2/csrc/mps/kernels/mutual_information_rounds.h"

// For kernels only: the backward direction.  Rows and columns count from the
// last cell of the sequence.

// The gradient and the share of the cell that a lane computed last.
struct BackwardState {
  float grad, share;
};

// One sequence.  The pointers point to the elements of its last cell.
//
// A chain reads the share of each cell from one tile, and writes the gradient
// of the cell to the other tile.
template <typename Output>
struct Backward {
  using Entry = float;
  using State = BackwardState;
  enum { kTwoInputs = 0 };

  device const float *p;
  device Output *px_grad, *py_grad;
  float ans_grad;
  int px_stride, py_stride, p_stride;
  uint last_p;  // the index of the first cell
  // See px_begin and px_apart of Forward.
  int p_begin, p_apart;
  // The inputs that Load() has loaded.
  float shares[kMoves], above;

  static float Nothing() { return 0.0f; }
  static BackwardState Start() { return BackwardState{0.0f, 0.0f}; }
  static float ToBelow(BackwardState state) { return state.share * state.grad; }
  static float FromLaneAbove(BackwardState state) {
    return metal::simd_shuffle_up(ToBelow(state), 1);
  }
  float Origin() const { return ans_grad; }

  void SetUp(constant MutualInformationParams &params, Boundary range,
             Schedule schedule, Elements elements) {
    px_stride = params.T + 1 + params.t_offset;
    py_stride = params.T;
    p_stride = params.T + 1;
    p += range.s_end * p_stride + range.t_end;
    px_grad += (range.s_end - 1) * px_stride + range.t_end + params.t_offset;
    py_grad += range.s_end * py_stride + range.t_end - 1;
    last_p = uint(schedule.S * p_stride + schedule.T);
    p_begin = elements.row * p_stride + elements.t;
    p_apart = kRowsApart * (p_stride - schedule.skew);
#pragma unroll
    for (int i = 0; i < kMoves; ++i) shares[i] = 0.0f;
    above = Nothing();
  }

  // Where there is no cell, a lane loads some other share of the sequence.  The
  // gradient is 0 there, and stays 0.
  void Load(int step) {
#pragma unroll
    for (int i = 0; i < kMoves; ++i)
      shares[i] =
          // NOLINTNEXTLINE
          p[-long(metal::min(uint(p_begin + step + i * p_apart), last_p))];
  }

  void Place(Schedule, Elements elements, int, threadgroup float *tiles) const {
    // Outside of the boundary p may be anything, even NaN.
#pragma unroll
    for (int i = 0; i < kMoves; ++i)
      tiles[elements.at + 4 * i * kRowsApart] = metal::saturate(shares[i]);
  }

  static void Step(float from_above, thread float &share, thread float &grad,
                   thread BackwardState &state) {
    grad = metal::fma(1.0f - state.share, state.grad, from_above);
    state.grad = grad;
    state.share = share;
  }

  void EndChunk(Schedule, Thread, int, thread BackwardState &) const {}

  // Stores the gradients of px and py.
  void Drain(Schedule schedule, Elements elements, int step,
             threadgroup const float *tiles) const {
    const int px_apart = kRowsApart * (px_stride - schedule.skew),
              py_apart = kRowsApart * (py_stride - schedule.skew);
    tiles += elements.at;
    const int first_t = elements.t + step;
    device Output *px_out = px_grad - (elements.row * px_stride + first_t);
    device Output *py_out = py_grad - (elements.row * py_stride + first_t);
#pragma unroll
    for (int i = 0; i < kMoves; ++i) {
      const int row = elements.row + i * kRowsApart,
                t = first_t - i * kRowsApart * schedule.skew;
      const float share = tiles[4 * i * kRowsApart],
                  grad = tiles[4 * (kTile + i * kRowsApart)];
      if (row < schedule.S && t >= 0 && t <= schedule.T + schedule.t_offset)
        px_out[-i * px_apart] = Output(share * grad);
      if (row <= schedule.S && t >= 0 && t < schedule.T)
        py_out[-i * py_apart] = Output((1.0f - share) * grad);
    }
  }
};

#endif  // K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_BACKWARD_H_
