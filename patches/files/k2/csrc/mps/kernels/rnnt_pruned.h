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

#ifndef K2_CSRC_MPS_KERNELS_RNNT_PRUNED_H_
#define K2_CSRC_MPS_KERNELS_RNNT_PRUNED_H_

// Shared by the host and the kernels of rnnt_pruned.metal.

// The arguments of the kernels.  Each kernel has some of these arguments.
enum RnntPrunedBuffer {
  kRpLogits,
  kRpSymbols,
  kRpRanges,
  kRpBoundary,
  kRpLse,
  kRpPx,
  kRpPy,
  kRpOnes,
  kRpParams,
  kRpPxGrad,
  kRpPyGrad,
  kRpRowGrads,
  kRpScores,
  kRpLoss,
  kRpReduce,
  kRpLossGrad,
  kRpGrad,
};

// All members have the same size and alignment in C++ and in Metal.
struct RnntPrunedParams {
  int B, S, T, C;
  int R;           // rows of a frame: s_range, or S + 1 without ranges
  int blank;       // the termination symbol
  int px_columns;  // T + 1 if rnnt_type is regular, else T
  int has_ranges, has_boundary;
  int constrained, hat;
  float delay_penalty;
  // Only for the backward kernel: loss_scale multiplies loss_grad.  loss_stride
  // is the distance between elements of loss_grad, 0 if there is one element.
  float loss_scale;
  int loss_stride;
};

struct RnntReduceParams {
  int B;
  int sums;       // 1 for one loss of all sequences, 0 for a loss of each
  float divisor;  // divides the sum if `sums` is 1
};

enum RnntPrunedSizes {
  kRpFrames = 8,  // frames of a threadgroup
  // Rows of a frame for which threadgroup memory has room.  The number is odd,
  // so that lanes that read the same row of different frames use different
  // banks.
  kRpRows = 63,
  kRpThreads = 256  // threads of a threadgroup
};

#endif  // K2_CSRC_MPS_KERNELS_RNNT_PRUNED_H_
