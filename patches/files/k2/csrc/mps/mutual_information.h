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

#ifndef K2_CSRC_MPS_MUTUAL_INFORMATION_H_
#define K2_CSRC_MPS_MUTUAL_INFORMATION_H_

#include <vector>

#include "k2/csrc/mps/mps_context.h"
#include "torch/all.h"

namespace k2 {

/* MutualInformationCpu() and MutualInformationBackwardCpu() on the GPU;
   k2/python/csrc/torch/mutual_information.h says what these functions compute.
   Each function encodes one dispatch if S is less than 256, and several if S is
   greater.  No function waits.

   All tensors are on device mps, and torch.float32 unless stated otherwise.

   @param [in] px          [B][S][T + 1], or [B][S][T] if modified; may also be
                           of torch.float16 or torch.bfloat16.
   @param [in] py          [B][S + 1][T], of the type of px.
   @param [in] boundary    torch.int64, [B][4], (s_begin, t_begin, s_end,
                           t_end); it is (0, 0, S, T) if not given.
   @param [in,out] p       [B][S + 1][T + 1], contiguous.  The forward pass
                           writes p and the backward pass reads p.  On the CPU,
                           p has the scores of the cells.  On the GPU, p has the
                           shares of the cells, see
                           kernels/mutual_information.metal.
   @param [in] ans_grad    [B], the gradient of what the forward pass returns,
                           of any floating-point type.

   @return  The forward pass returns the score of (s_end, t_end), shape [B]. The
            backward pass returns the gradients of px and py, of the type of px;
            the gradients are 0 outside of the boundary.
 */
torch::Tensor MutualInformationMps(
    torch::Tensor px, torch::Tensor py,
    const torch::optional<torch::Tensor> &boundary, torch::Tensor p);

std::vector<torch::Tensor> MutualInformationBackwardMps(
    torch::Tensor px, torch::Tensor py,
    const torch::optional<torch::Tensor> &boundary, torch::Tensor p,
    torch::Tensor ans_grad);

#if !K2_WITH_MPS

// GetMpsContext() dies with the message that k2 was not built with MPS.

inline torch::Tensor MutualInformationMps(
    torch::Tensor, torch::Tensor, const torch::optional<torch::Tensor> &,
    torch::Tensor) {
  GetMpsContext();
  return {};
}

inline std::vector<torch::Tensor> MutualInformationBackwardMps(
    torch::Tensor, torch::Tensor, const torch::optional<torch::Tensor> &,
    torch::Tensor, torch::Tensor) {
  GetMpsContext();
  return {};
}

#endif  // !K2_WITH_MPS

}  // namespace k2

#endif  // K2_CSRC_MPS_MUTUAL_INFORMATION_H_
