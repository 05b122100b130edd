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

#ifndef K2_CSRC_MPS_RNNT_PRUNED_H_
#define K2_CSRC_MPS_RNNT_PRUNED_H_

#include <string>
#include <utility>

#include "torch/all.h"

namespace k2 {

// The arguments of rnnt_loss_pruned(), or of rnnt_loss().
struct RnntPruned {
  torch::Tensor logits;   // [B][T][s_range][C], torch.float32, float16 or
                          // bfloat16, contiguous, with elements
  torch::Tensor symbols;  // [B][S], torch.int64, contiguous
  // [B][T][s_range], torch.int64, contiguous.  If `ranges` is not given,
  // s_range is S + 1 and j takes the place of ranges[b][t][j].
  torch::optional<torch::Tensor> ranges;
  // [B][4], torch.int64, contiguous: s_begin, t_begin, s_end, t_end.  The
  // caller has checked the values.
  torch::optional<torch::Tensor> boundary;
  int64_t blank;          // the termination symbol, within [0, C)
  std::string rnnt_type;  // regular, modified or constrained
  double delay_penalty;
  std::string reduction;  // none, mean or sum
  bool hat;               // use_hat_loss; needs blank 0
};

// What the forward pass saves for the backward pass, all of torch.float32.
struct RnntPrunedSaved {
  torch::Tensor lse;        // [B][T][s_range], the normalizer of each row
  torch::Tensor row_grads;  // [B][T][s_range][2], the gradients of px and py
                            // that each row needs
};

/* Computes the loss on the GPU in three dispatches, without a wait.  If S is
   256 or more, the recursion takes more dispatches.  See
   kernels/rnnt_pruned.metal for the formulas.

   @param [in] need_grad  Whether to compute the gradients of px and py too, in
                          one more dispatch, and to save the elements that the
                          rows of logits need.
   @return  The loss, torch.float32, of shape [B] or []; and if need_grad, what
            RnntPrunedBackward() needs.
 */
std::pair<torch::Tensor, torch::optional<RnntPrunedSaved>> RnntPrunedForward(
    const RnntPruned &problem, bool need_grad);

/* Computes the gradient of the logits in one dispatch, without a wait.

   @param [in] saved      What RnntPrunedForward() saved.
   @param [in] loss_grad  torch.float32, of the shape of the loss.
   @param [in] overwrite  Whether to write the gradient over the logits.
   @return  The gradient, of the shape and the type of the logits.
 */
torch::Tensor RnntPrunedBackward(const RnntPruned &problem,
                                 const RnntPrunedSaved &saved,
                                 torch::Tensor loss_grad, bool overwrite);

/* Negates the scores of sequences, in one dispatch, without a wait.

   @param [in] scores     [B], torch.float32, on mps.
   @param [in] reduction  none, mean or sum.
   @return  The losses, [B], or their mean or sum, [].
 */
torch::Tensor RnntReduce(const torch::Tensor &scores,
                         const std::string &reduction);

}  // namespace k2

#endif  // K2_CSRC_MPS_RNNT_PRUNED_H_
