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

#ifndef K2_CSRC_MPS_KERNELS_RNNT_SMOOTHED_H_
#define K2_CSRC_MPS_KERNELS_RNNT_SMOOTHED_H_

// Shared by the host and the kernels of rnnt_smoothed.metal and
// rnnt_smoothed_grad.metal.

// The arguments of the kernels.  A kernel takes some of them.
enum RnntSmoothedBuffer {
  kSmoothedAm,
  kSmoothedLm,
  kSmoothedSymbols,
  kSmoothedBoundary,
  kSmoothedAmExp,
  kSmoothedLmExp,
  kSmoothedAmMax,
  kSmoothedLmMax,
  kSmoothedLmLogSum,
  kSmoothedNext,
  kSmoothedParams,
  kSmoothedUnigram,
  kSmoothedAmLogSum,
  kSmoothedProducts,
  kSmoothedPx,
  kSmoothedPy,
  kSmoothedLogSums,
  kSmoothedPxGrad,
  kSmoothedPyGrad,
  kSmoothedOnes,
  kSmoothedLossGrad,
  kSmoothedWeights,
  kSmoothedSums,
  kSmoothedParts,
  kSmoothedUnigramGrad,
  kSmoothedAmGrad,
  kSmoothedLmGrad,
};

// All members have the same size and alignment in C++ and in Metal.
struct RnntSmoothedParams {
  int B, S, T, C;    // of lm, [B][S + 1][C], and am, [B][T][C]
  int blank;         // the termination symbol
  int px_columns;    // T + 1 if regular, else T
  int constrained;   // whether px includes the next blank
  int has_boundary;  // whether the kernels read `boundary`
  // 1 for a loss, which does not depend on cells outside of the boundary: their
  // logits are not read.  0 for px and py themselves.
  int skips_padding;
  int grad_mode;  // one of RnntSmoothedGrads
  int has_grads;  // whether the forward pass computes gradients too
  float combined_scale, lm_scale, am_scale;  // of the parts; their sum is 1
  float delay_penalty;
};

// The factor of px_grad and py_grad of sequence b in the backward pass; see
// GradScale().
enum RnntSmoothedGrads {
  kRsNone = 0,  // -loss_grad[b]
  kRsSum = 1,   // -loss_grad[0]
  kRsMean = 2,  // -loss_grad[0] / B
  kRsOne = 3    // 1: px_grad and py_grad are gradients already
};

enum RnntSmoothedSizes {
  kRsThreads = 256,      // of a threadgroup: 8 simdgroups
  kRsTile = 32,          // positions and frames of a threadgroup's tile
  kRsFramesOfPiece = 64  // frames, of all sequences, that are added up together
};

#endif  // K2_CSRC_MPS_KERNELS_RNNT_SMOOTHED_H_
