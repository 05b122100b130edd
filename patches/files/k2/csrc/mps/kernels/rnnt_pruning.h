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

#ifndef K2_CSRC_MPS_KERNELS_RNNT_PRUNING_H_
#define K2_CSRC_MPS_KERNELS_RNNT_PRUNING_H_

// Shared by the host and the kernels of rnnt_pruning.metal.

// The arguments of the kernels.  Each kernel has some of these arguments.
enum RnntPruningBuffer {
  kRnntPruningPxGrad,
  kRnntPruningPyGrad,
  kRnntPruningBoundary,
  kRnntPruningRanges,
  kRnntPruningParams,
  kRnntPruningAm,
  kRnntPruningLm,
  kRnntPruningOut,
  kRnntPruningOutGrad,
  kRnntPruningAmGrad,
  kRnntPruningLmGrad,
};

// All members have the same size and alignment in C++ and in Metal.
struct RnntRangesParams {
  int S, T, R;     // R is s_range
  int px_columns;  // T + 1 if rnnt_type is regular, else T
  int most_step;   // how much the start of a range may rise from frame to frame
};

struct RnntPruningParams {
  int B, S, T, R, D;  // R is s_range; D is the number of elements of a row
  // Only for the backward kernels: which gradients to write.
  int has_am_grad, has_lm_grad;
};

enum RnntPruningSizes {
  // Threads of a threadgroup of rnnt_prune_ranges.
  kRnntPruningRangesThreads = 512,
  // Threads of a threadgroup of rnnt_prune or of rnnt_joiner_input.
  kRnntPruningRowThreads = 256,
  // Threads of a threadgroup of a backward kernel.
  kRnntPruningBackwardThreads = 256,
  kRnntPruningFound = 1024  // rows that a backward kernel searches at once
};

#endif  // K2_CSRC_MPS_KERNELS_RNNT_PRUNING_H_
