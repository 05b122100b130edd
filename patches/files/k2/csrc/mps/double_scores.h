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

#ifndef K2_CSRC_MPS_DOUBLE_SCORES_H_
#define K2_CSRC_MPS_DOUBLE_SCORES_H_

#include <utility>

#include "k2/csrc/fsa.h"
#include "k2/csrc/ragged.h"
#include "torch/all.h"

namespace k2 {

// Scores of states nearly in double precision, on the GPU; see
// kernels/double_scores.metal.  Nothing waits.  Python calls these functions
// (k2/python/k2/mps/double_scores.py), under K2_WITH_MPS only.
//
// What they return differs from what the CPU makes of double by less than
// rounding to float does.

// An FsaVec with arcs, acyclic.  All of it is on device mps.
struct BatchedFsas {
  FsaVec fsas;
  Ragged<int32_t> state_batches;  // [batch][fsa][state], of idx01 of `fsas`
  bool log_semiring;              // else tropical
  // What GetIncomingArcs() returns, as tensors of int32: where the arcs that
  // enter each state begin, [states + 1], and their indexes, [arcs].  Functions
  // that say so do without.
  torch::Tensor entering_begins, entering;
};

// Scores of all states in one direction, as the kernels have them.
struct DoubleScores {
  torch::Tensor states;     // float32, [states, 4], see LogSum in two_float.h
  torch::Tensor totals;     // float32, [fsas], total scores; -infinity for FSAs
                            // without states
  torch::Tensor best_arcs;  // int32, [states], the last of the best arcs of
                            // each, -1 if it has none; not of the log semiring
};

/* Whether the kernels are faster than the host, see placement.h.

   @param [in] num_arcs, num_batches   Of all FSAs.
 */
bool PreferDoubleScoresMps(int32_t num_arcs, int32_t num_batches);

/* Computes scores in a dispatch, or in several if they take long.

   @param [in] fsas      The FSAs.  Backward scores do without entering arcs.
   @param [in] forward   Whether to compute forward scores.
   @param [in] backward  Whether to compute backward scores.
   @return     Forward scores, then backward scores; of what is not computed the
               tensors are undefined.
 */
std::pair<DoubleScores, DoubleScores> ComputeDoubleScores(BatchedFsas &fsas,
                                                          bool forward,
                                                          bool backward);

// Returns scores as float32, [states], in a dispatch.
torch::Tensor RoundDoubleScores(const DoubleScores &scores);

/* Returns the gradient of the arcs' scores, float32, [arcs], in two dispatches,
   or in more if they take long.

   @param [in] fsas        As given to ComputeDoubleScores().  The gradient of
                           forward scores does without entering arcs.
   @param [in] is_forward  Whether `scores` are forward scores.
   @param [in] scores      What ComputeDoubleScores() returned.
   @param [in] grad        float32; of the scores, [states], or of the total
                           scores, [fsas], of any stride.
   @param [in] of_totals   Which of the two.
 */
torch::Tensor DoubleScoresBackprop(BatchedFsas &fsas, bool is_forward,
                                   const DoubleScores &scores,
                                   torch::Tensor grad, bool of_totals);

/* Returns the gradient of the arcs' scores, float32, [arcs], of total scores in
   the log semiring, in a dispatch.

   @param [in] fsas   As given to ComputeDoubleScores().
   @param [in] forward, backward   What that returned.
   @param [in] grad   float32, [fsas], of any stride.
 */
torch::Tensor DoubleTotalsBackprop(BatchedFsas &fsas,
                                   const DoubleScores &forward,
                                   const DoubleScores &backward,
                                   torch::Tensor grad);

// Returns the logarithms of the posteriors of arcs, float32, [arcs], in a
// dispatch.
torch::Tensor DoubleArcPost(BatchedFsas &fsas, const DoubleScores &forward,
                            const DoubleScores &backward);

/* Computes the gradient of what DoubleArcPost() does for the scores of states,
   in a dispatch.

   @param [in] fsas   As given to DoubleArcPost().
   @param [in] grad   float32, [arcs], that of the posteriors.
   @return     The gradients of forward and of backward scores, float32,
               [states].
 */
std::pair<torch::Tensor, torch::Tensor> DoubleArcPostBackprop(
    BatchedFsas &fsas, torch::Tensor grad);

}  // namespace k2

#endif  // K2_CSRC_MPS_DOUBLE_SCORES_H_
