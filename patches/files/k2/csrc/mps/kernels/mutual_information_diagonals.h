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

#ifndef K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_DIAGONALS_H_
#define K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_DIAGONALS_H_

#include "k2/csrc/mps/kernels/log_add.h"
#include "k2/csrc/mps/kernels/mutual_information_backward.h"
#include "k2/csrc/mps/kernels/mutual_information_forward.h"

// For kernels only: the recursion of a sequence with unusual inputs.  A
// threadgroup computes one diagonal of cells after another, in device memory.
// The expressions are those of MutualInformationCpu(), with operands in the
// same order, so infinities and NaN spread as on the CPU.  This is much slower
// than chains.

// The share of the first cell, which no cell uses, if not all shares are
// finite.
constant float kNotAllFinite = 2.0f;

// The cells (row, number - row) of a lattice.
struct Diagonal {
  int first_row, last_row;
};

inline Diagonal GetDiagonal(Schedule schedule, int number) {
  return Diagonal{metal::max(0, number - schedule.T),
                  metal::min(number, schedule.S)};  // NOLINT
}

template <typename Input>
inline float FromAbove(Forward<Input> sequence, int s, int t) {
  return sequence.p[(s - 1) * sequence.p_stride + t] +
         static_cast<float>(sequence.px[(s - 1) * sequence.px_stride + t]);
}

// Leaves scores in p.
template <typename Input>
inline void ScoresByDiagonals(Forward<Input> sequence, Schedule schedule,
                              Thread me) {
  const int t_offset = schedule.t_offset;
  for (int number = 0; number <= schedule.S + schedule.T; ++number) {
    const Diagonal diagonal = GetDiagonal(schedule, number);
    for (int s = diagonal.first_row + me.index; s <= diagonal.last_row;
         s += me.num_threads) {
      const int t = number - s;
      device float *cell = sequence.p + s * sequence.p_stride + t;
      float score = 0.0f;
      if (t == 0 && s > 0) {
        score = t_offset != 0 ? -INFINITY : FromAbove(sequence, s, t);
      } else if (t > 0) {
        const float from_left =
            cell[-1] +
            static_cast<float>(sequence.py[s * sequence.py_stride + t - 1]);
        score = s == 0
                    ? from_left
                    : LogAdd(FromAbove(sequence, s, t + t_offset), from_left);
      }
      *cell = score;
      if (s == schedule.S && t == schedule.T) *sequence.ans = score;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_device);
  }
}

// Leaves shares in p, as the forward kernel does.
template <typename Input>
inline void ForwardByDiagonals(Forward<Input> sequence, Schedule schedule,
                               Thread me) {
  ScoresByDiagonals(sequence, schedule, me);
  // The loop begins at the end: the share of a cell needs the scores of the
  // cells before it, and takes the place of the cell's own score.
  for (int number = schedule.S + schedule.T; number >= 0; --number) {
    const Diagonal diagonal = GetDiagonal(schedule, number);
    for (int s = diagonal.first_row + me.index; s <= diagonal.last_row;
         s += me.num_threads) {
      const int t = number - s;
      device float *cell = sequence.p + s * sequence.p_stride + t;
      float share = t == 0 ? 1.0f : 0.0f;
      if (number == 0) {
        share = kNotAllFinite;
      } else if (s > 0 && t > 0) {
        const float total = *cell - *cell == 0.0f ? *cell : 0.0f;
        share = metal::precise::exp(
            FromAbove(sequence, s, t + schedule.t_offset) - total);
      }
      *cell = share;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_device);
  }
}

// The derivative of ForwardByDiagonals().  Rows and columns count from the last
// cell.
//
// diagonals  [3][S + 1], scratch: the gradients of the last three diagonals
template <typename Output>
inline void BackwardByDiagonals(Backward<Output> sequence, Schedule schedule,
                                Thread me, device float *diagonals) {
  const int t_offset = schedule.t_offset, size = schedule.S + 1;
  for (int number = 0; number <= schedule.S + schedule.T; ++number) {
    const Diagonal diagonal = GetDiagonal(schedule, number);
    device float *grads = diagonals + number % 3 * size;
    device const float *of_left = diagonals + (number + 2) % 3 * size,
                       *of_above =
                           diagonals + (number + 2 + t_offset) % 3 * size - 1;
    for (int s = diagonal.first_row + me.index; s <= diagonal.last_row;
         s += me.num_threads) {
      const int t = number - s;
      device const float *cell = sequence.p - (s * sequence.p_stride + t);
      float grad = number == 0 ? sequence.ans_grad : 0.0f;
      if (s > 0 && t + t_offset >= 0) {
        const float share = cell[sequence.p_stride - t_offset];
        if (share - share == 0.0f) grad += share * of_above[s];
      }
      if (t > 0) {
        const float share = cell[1];
        if (share - share == 0.0f) grad += (1.0f - share) * of_left[s];
      }
      grads[s] = grad;
      const float share = *cell;
      const bool finite = share - share == 0.0f;
      if (s < schedule.S && t <= schedule.T + t_offset)
        sequence.px_grad[-(s * sequence.px_stride + t)] =
            Output(finite ? share * grad : 0.0f);
      if (t < schedule.T)
        sequence.py_grad[-(s * sequence.py_stride + t)] =
            Output(finite ? (1.0f - share) * grad : 0.0f);
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_device);
  }
}

#endif  // K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_DIAGONALS_H_
