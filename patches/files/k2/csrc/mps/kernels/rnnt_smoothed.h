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

// The arguments of the kernels.  Each kernel has some of these arguments.
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
  int B, S, T, C;    // lm is [B][S + 1][C], am is [B][T][C]
  int blank;         // the termination symbol
  int px_columns;    // T + 1 if rnnt_type is regular, else T
  int constrained;   // whether px includes the blank of the next position
  int has_boundary;  // whether the kernels read `boundary`
  // 1 for a loss: a loss does not depend on logits outside of the boundary, so
  // the kernels do not read these logits.  0 if the results are px and py.
  int skips_padding;
  int grad_mode;  // one of RnntSmoothedGrads
  int has_grads;  // whether the forward pass also computes gradients
  float combined_scale, lm_scale, am_scale;  // of the three log-probs; sum to 1
  float delay_penalty;
};

// The factor by which the backward pass multiplies px_grad and py_grad of
// sequence b; see GradScale().
enum RnntSmoothedGrads {
  kSmoothedModeNone = 0,  // -loss_grad[b]
  kSmoothedModeSum = 1,   // -loss_grad[0]
  kSmoothedModeMean = 2,  // -loss_grad[0] / B
  kSmoothedModeOne = 3    // 1; px_grad and py_grad are gradients already
};

enum RnntSmoothedSizes {
  kSmoothedThreads = 256,      // threads of a threadgroup
  kSmoothedTile = 32,          // positions, and frames, of a threadgroup's tile
  kSmoothedFramesOfPiece = 64  // frames that a threadgroup adds up
};

#endif  // K2_CSRC_MPS_KERNELS_RNNT_SMOOTHED_H_
