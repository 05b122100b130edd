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

#ifndef K2_CSRC_MPS_CTC_H_
#define K2_CSRC_MPS_CTC_H_

#include <utility>

#include "k2/csrc/fsa.h"
#include "k2/csrc/mps/graph_index.h"
#include "torch/all.h"

namespace k2 {

// CTC without a lattice; see kernels/ctc_pass.h.  Python calls these functions
// (k2/python/k2/mps/ctc.py), only in a build with K2_WITH_MPS.

/* Returns whether the kernels are estimated to be faster than a lattice, see
   placement.h.  Returns false if a dispatch might take more than a second.

   @param [in] fsas       Decoding graphs on device mps.
   @param [in] num_rows   Rows of the longest sequence.
 */
bool PreferCtcMps(FsaVec &fsas, int64_t num_rows);

// The arguments of k2.ctc_loss, as the forward and the backward pass need them.
struct CtcCall {
  FsaVec graphs;      // decoding graphs on device mps, with arcs
  GraphIndex index;   // of the graphs
  DenseFsaVec dense;  // scores of frames; sequence i belongs to graph i, and
                      // the lengths may be in any order
  int32_t num_rows;   // rows of the longest sequence, more than 0
  // uint8, [arcs], not 0 for a penalized arc; nullopt if no arc is penalized.
  torch::optional<torch::Tensor> penalized;
  // In the n-th frame after the middle of the sequence, n * penalty is added to
  // the scores of penalized arcs.  Before the middle, n is negative.  Pruning
  // ignores the penalty.
  float penalty;
  bool use_double;    // whether to compute with nearly double precision
  bool all_sums;      // whether to keep the sums of all states at all times;
                      // the gradient of the graphs' scores needs them
  float output_beam;  // as for IntersectDense()
};

// What CtcBackward() needs from the forward pass.
struct CtcSaved {
  torch::Tensor kept;    // int32, with a bit for each arc and row.  The bit is
                         // 1 if the lattice would keep the arc; see ctc_keep
  torch::Tensor sums;    // float32, the sums of states at checkpoints
  torch::Tensor totals;  // float32, [FSAs, 2], the sum over the paths of each
                         // FSA, see PathSum in kernels/path_sums.h
};

/* Returns the total scores, in the log semiring, of the lattice that
   IntersectDense() would make of `call.graphs` and `call.dense` if the size of
   the lattice had no limits.  Encodes four dispatches, and does not wait.

   @return   The scores, float32, [FSAs], and what CtcBackward() needs.  The
             score of a graph is NaN if the graph has a label for which
             `call.dense` has no column.
 */
std::pair<torch::Tensor, CtcSaved> CtcForward(CtcCall &call);

/* Computes the backward pass of CtcForward().  Encodes a dispatch for each
   gradient that is needed, and does not wait.

   @param [in] call         As given to CtcForward().
   @param [in] saved        What CtcForward() returned.
   @param [in] score_grads  The gradient of the scores, float32, [FSAs].
   @param [in] need_graphs, need_dense   Which gradients to compute;
                            `need_graphs` requires `call.all_sums`.
   @return   The gradient of the scores of the graphs' arcs, float32, [arcs],
             and the gradient of call.dense.scores, float32, of the shape of
             these scores.  A gradient that is not needed is undefined.
 */
std::pair<torch::Tensor, torch::Tensor> CtcBackward(CtcCall &call,
                                                    const CtcSaved &saved,
                                                    torch::Tensor score_grads,
                                                    bool need_graphs,
                                                    bool need_dense);

}  // namespace k2

#endif  // K2_CSRC_MPS_CTC_H_
