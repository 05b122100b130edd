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

#ifndef K2_CSRC_MPS_RNNT_SMOOTHED_H_
#define K2_CSRC_MPS_RNNT_SMOOTHED_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "torch/all.h"

namespace k2 {

/* The inputs of rnnt_loss_smoothed() or of get_rnnt_logprobs_smoothed(), which
   are in k2/python/k2/rnnt_loss.py.

   All tensors are on device mps and contiguous, and torch.float32 unless stated
   otherwise.  S may be 0; all other sizes are greater than 0.  Below, a command
   of the GPU is a dispatch, or a matrix product by torch.  The numbers of
   commands are those for S < 256; see MutualInformationMps() for a greater S.
 */
struct RnntSmoothed {
  torch::Tensor lm;                         // [B][S + 1][C]
  torch::Tensor am;                         // [B][T][C]
  torch::Tensor symbols;                    // torch.int64, [B][S]
  torch::optional<torch::Tensor> boundary;  // torch.int64, [B][4]
  int32_t termination_symbol;
  std::string rnnt_type;  // regular, modified or constrained
  double lm_only_scale, am_only_scale, delay_penalty;
};

// What a forward pass saves for its backward pass, torch.float32 unless stated
// otherwise.  See kernels/rnnt_smoothed.metal for the formulas.
struct RnntSmoothedSaved {
  // [B][T] and [B][S + 1], the largest logit of each row.
  torch::Tensor am_max, lm_max;
  // Of the shapes of am and lm: exp(am - am_max) and exp(lm - lm_max).
  torch::Tensor am_exp, lm_exp;
  torch::Tensor lm_log_sum;  // [B][S + 1], the logs of lm_exp's sums
  torch::Tensor next;        // torch.int32, [B][S], see NextPlace()
  // The log of the average of lm's probabilities, [C], and the logs of the
  // normalizers of am with this average, [B][T].  If the am-only scale is 0,
  // am_max takes the place of both, because Metal binds no empty buffer.
  torch::Tensor unigram, am_log_sum;
  torch::Tensor log_sums;  // [B][S + 1][T], the normalizers of am and lm
  // The gradients of the sum of all sequences' scores with respect to px and
  // py.  The score of a sequence is its negative loss.  Given only if
  // RnntSmoothedLoss() was asked for them.
  torch::optional<torch::Tensor> px_grad, py_grad;
};

/* Computes px and py in 3 commands of the GPU, or 5 with an am-only scale.

   @return   px, [B][S][T + 1], or [B][S][T] if rnnt_type is not regular; py,
             [B][S + 1][T]; and what RnntSmoothedLogprobsBackward() needs.
 */
std::tuple<torch::Tensor, torch::Tensor, RnntSmoothedSaved>
RnntSmoothedLogprobs(const RnntSmoothed &in);

/* Computes the gradients of lm and am from the gradients of px and py, in 4
   commands of the GPU, or 6 with an am-only scale.

   @param [in] saved            What RnntSmoothedLogprobs() saved.
   @param [in] px_grad, py_grad   Of the shapes of px and py.
   @return                      The gradients of lm and am.
 */
std::pair<torch::Tensor, torch::Tensor> RnntSmoothedLogprobsBackward(
    const RnntSmoothed &in, const RnntSmoothedSaved &saved,
    torch::Tensor px_grad, torch::Tensor py_grad);

/* Computes the loss in 5 commands of the GPU, or 7 with an am-only scale, and
   one more if need_grads.  Without an am-only scale, logits outside of the
   boundary are not read.  With an am-only scale, the average of lm over all
   positions is needed.

   @param [in] reduction    none, sum or mean.
   @param [in] need_grads   Whether to compute px_grad and py_grad.
   @return   The loss, [B] or [], and what RnntSmoothedLossBackward() needs.
 */
std::pair<torch::Tensor, RnntSmoothedSaved> RnntSmoothedLoss(
    const RnntSmoothed &in, const std::string &reduction, bool need_grads);

/* Computes the gradients of lm and am in 4 commands of the GPU, or 6 with an
   am-only scale.

   @param [in] reduction    As given to RnntSmoothedLoss().
   @param [in] saved        What RnntSmoothedLoss() saved, with px_grad and
                            py_grad.
   @param [in] loss_grad    The gradient of the loss.
   @return                  The gradients of lm and am.
 */
std::pair<torch::Tensor, torch::Tensor> RnntSmoothedLossBackward(
    const RnntSmoothed &in, const std::string &reduction,
    const RnntSmoothedSaved &saved, torch::Tensor loss_grad);

}  // namespace k2

#endif  // K2_CSRC_MPS_RNNT_SMOOTHED_H_
