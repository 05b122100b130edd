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
// kernels/double_scores.metal.  No function waits.  Python calls these
// functions (k2/python/k2/mps/double_scores.py), only in a build with
// K2_WITH_MPS.
//
// Here, forward and backward are directions of scores.  Backward passes of
// autograd are called Backprop, as in BackpropGetForwardScores().
//
// The difference between the results and the CPU's results in double precision
// is smaller than the error of rounding to float.

// An acyclic FsaVec with arcs, and its batches of states, on device mps.
struct BatchedFsas {
  FsaVec fsas;
  Ragged<int32_t> state_batches;  // [batch][fsa][state], the idx01 of states
  bool log_semiring;              // else tropical
  // What GetIncomingArcs() returns, as tensors of int32.  `incoming`, [arcs],
  // has the indexes of the arcs that enter each state.  incoming_begins,
  // [states + 1], has the position where each state's arcs begin in `incoming`.
  // Both tensors may be undefined for a function that needs no incoming arcs.
  torch::Tensor incoming_begins, incoming;
};

// The scores of all states in one direction, in the kernels' form.
struct DoubleScores {
  torch::Tensor states;     // float32, [states, 4 or 3], see LogScore and
                            // BestScore in kernels/double_batches.h
  torch::Tensor totals;     // float32, [fsas], total scores; -infinity for FSAs
                            // without states
  torch::Tensor best_arcs;  // int32, [states], the last one of the best arcs of
                            // each state, or -1 if the state has none; only in
                            // the tropical semiring
  bool log_semiring;
};

/* Returns whether the kernels are estimated to be faster than the host, see
   placement.h.

   @param [in] fsas         As in BatchedFsas.
   @param [in] num_batches  The number of batches of states.
 */
bool PreferDoubleScoresMps(FsaVec &fsas, int32_t num_batches);

/* Computes scores in one dispatch, or in several if one would take too long.

   @param [in] fsas      The FSAs.  Backward scores need no incoming arcs.
   @param [in] forward   Whether to compute forward scores.
   @param [in] backward  Whether to compute backward scores.
   @return     Forward scores, then backward scores.  Scores that are not
               computed have undefined tensors.
 */
std::pair<DoubleScores, DoubleScores> ComputeDoubleScores(BatchedFsas &fsas,
                                                          bool forward,
                                                          bool backward);

// Returns scores as float32, [states], in one dispatch.
torch::Tensor RoundDoubleScores(const DoubleScores &scores);

/* Returns the gradient of the arcs' scores, float32, [arcs], computed from the
   gradient of `scores` or of the total scores.  Takes two dispatches, or more
   if two would take too long.

   @param [in] fsas        As given to ComputeDoubleScores().  The gradient of
                           forward scores needs no incoming arcs.
   @param [in] is_forward  Whether `scores` are forward scores.
   @param [in] scores      What ComputeDoubleScores() returned.
   @param [in] grad        float32.  If of_totals, the gradient of the total
                           scores, [fsas], of any stride; else the gradient of
                           the scores, [states].
   @param [in] of_totals   Whether `grad` is the gradient of the total scores;
                           only in the tropical semiring.
 */
torch::Tensor DoubleScoresBackprop(BatchedFsas &fsas, bool is_forward,
                                   const DoubleScores &scores,
                                   torch::Tensor grad, bool of_totals);

/* Returns the gradient of the arcs' scores, float32, [arcs], computed from the
   gradient of the total scores in the log semiring, in one dispatch.

   @param [in] fsas   As given to ComputeDoubleScores().
   @param [in] forward, backward   What ComputeDoubleScores() returned.
   @param [in] grad   The gradient of the total scores, float32, [fsas], of any
                      stride.
 */
torch::Tensor DoubleTotalsBackprop(BatchedFsas &fsas,
                                   const DoubleScores &forward,
                                   const DoubleScores &backward,
                                   torch::Tensor grad);

// Returns the logarithms of the posteriors of arcs, float32, [arcs], in one
// dispatch.
torch::Tensor DoubleArcPost(BatchedFsas &fsas, const DoubleScores &forward,
                            const DoubleScores &backward);

/* Returns the gradients of the scores of states, computed from the gradient of
   DoubleArcPost()'s result, in one dispatch.

   @param [in] fsas   As given to DoubleArcPost().
   @param [in] grad   The gradient of the posteriors' logarithms, float32,
                      [arcs].
   @return     The gradients of forward and of backward scores, each float32,
               [states].
 */
std::pair<torch::Tensor, torch::Tensor> DoubleArcPostBackprop(
    BatchedFsas &fsas, torch::Tensor grad);

}  // namespace k2

#endif  // K2_CSRC_MPS_DOUBLE_SCORES_H_
