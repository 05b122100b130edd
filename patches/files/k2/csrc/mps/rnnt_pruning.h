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

#ifndef K2_CSRC_MPS_RNNT_PRUNING_H_
#define K2_CSRC_MPS_RNNT_PRUNING_H_

#include <utility>

#include "torch/all.h"

namespace k2 {

// Each function encodes one dispatch, and does not wait.  All tensors are on
// mps and contiguous.  Unless stated otherwise, all tensors of a call have the
// same type: torch.float32, torch.float16 or torch.bfloat16.

/* Computes get_rnnt_prune_ranges().

   @param [in] px_grad   torch.float32, [B][S][T + 1], or [B][S][T] if rnnt_type
                         is not regular; must have elements.
   @param [in] py_grad   torch.float32, [B][S + 1][T].
   @param [in] boundary  torch.int64, [B][4].
   @param [in] s_range   Within [1, S + 1].
   @return  torch.int64, [B][T][s_range].
 */
torch::Tensor RnntPruneRanges(torch::Tensor px_grad, torch::Tensor py_grad,
                              torch::Tensor boundary, int64_t s_range);

/* Returns the rows of lm that `ranges` selects, or tanh(am + these rows).  The
   result has shape [B][T][s_range][D].

   @param [in] am      [B][T][D]; without `am`, the result is the rows of lm.
   @param [in] lm      [B][S + 1][D]; must have elements.
   @param [in] ranges  torch.int64, [B][T][s_range]; must have elements.
 */
torch::Tensor RnntPrune(const torch::optional<torch::Tensor> &am,
                        torch::Tensor lm, torch::Tensor ranges);

/* Computes the gradients of am and lm from the gradient of RnntPrune()'s
   result.

   @param [in] out_grad  [B][T][s_range][D], the gradient of the result.
   @param [in] out       The result if RnntPrune() was given `am`; else nullopt.
   @param [in] ranges    As for RnntPrune().
   @param [in] num_symbols  S.
   @param [in] needs_am, needs_lm   Which gradients to compute.
   @return  The gradients of am, [B][T][D], and of lm, [B][S + 1][D].  Without
            `out`, the gradient of am is the sum of out_grad over the rows of
            each frame.  A gradient that is not needed is an undefined tensor.
 */
std::pair<torch::Tensor, torch::Tensor> RnntPruneBackward(
    torch::Tensor out_grad, const torch::optional<torch::Tensor> &out,
    torch::Tensor ranges, int64_t num_symbols, bool needs_am, bool needs_lm);

}  // namespace k2

#endif  // K2_CSRC_MPS_RNNT_PRUNING_H_
