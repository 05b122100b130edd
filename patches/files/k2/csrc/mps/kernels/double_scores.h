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

#ifndef K2_CSRC_MPS_KERNELS_DOUBLE_SCORES_H_
#define K2_CSRC_MPS_KERNELS_DOUBLE_SCORES_H_

// Shared by the host and the kernels of double_scores.metal.

// The arguments of the kernels.  Each kernel has some of these arguments.
enum DoubleScoresBuffer {
  kDsArcs,
  kDsStateBegins,
  kDsBatchBegins,
  kDsStates,
  kDsLeavingBegins,
  kDsIncomingBegins,
  kDsIncoming,
  kDsScores,
  kDsTotals,
  kDsBestArcs,
  kDsParams,
  kDsRounded,
  kDsShares,
  kDsGrad,
  kDsStateGrad,
  kDsArcGrad,
  kDsForwardScores,
  kDsBackwardScores,
  kDsArcPost,
  kDsForwardGrad,
  kDsBackwardGrad,
};

// All members have the same size and alignment in C++ and in Metal.
struct DoubleScoresParams {
  int num_fsas;
  int num_batches;  // of states
  int num_states;
  int num_arcs;
  int log_semiring;  // 1 for the log semiring, 0 for the tropical semiring
  int is_forward;    // 1 for forward scores, 0 for backward scores
  int of_totals;     // whether `grad` is the gradient of total scores
  int grad_stride;   // distance between the gradients of successive totals
  int num_parts;     // threadgroups of an FSA, if the kernel uses Part
  int first_batch;   // first batch of this dispatch, if the kernel uses Batches
  int last_batch;    // one past the last batch of this dispatch
};

enum DoubleScoresSizes {
  kDsArcThreads = 256,  // threads of a threadgroup, in kernels that use Part
  kDsArcsOfThread = 3,  // arcs of a state that a thread loads ahead
};

#endif  // K2_CSRC_MPS_KERNELS_DOUBLE_SCORES_H_
