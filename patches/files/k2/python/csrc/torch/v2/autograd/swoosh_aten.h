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

#ifndef K2_PYTHON_CSRC_TORCH_V2_AUTOGRAD_SWOOSH_ATEN_H_
#define K2_PYTHON_CSRC_TORCH_V2_AUTOGRAD_SWOOSH_ATEN_H_

#include <utility>

#include "torch/all.h"

// The swoosh functions by operations of ATen, for devices on which those run
// natively while a loop of k2 would make the host wait for the device (mps).
//
// With l(x) = log(1 + exp(x - shift)), its derivative is a sigmoid, and
//
//   swoosh(x) = l(x) - coeff * x - offset
//
// `Constants` has kShift, kCoeff and kOffset; all tensors are torch.float32
// unless said otherwise.

namespace k2 {

template <typename Constants>
torch::Tensor SwooshAten(const torch::Tensor &x) {
  // softplus() is x itself above the threshold, where l(x) rounds to it.
  return torch::softplus(x - Constants::kShift)
      .sub_(x, Constants::kCoeff)
      .sub_(Constants::kOffset);
}

// Returns (swoosh(x), swoosh'(x)).
template <typename Constants>
std::pair<torch::Tensor, torch::Tensor> SwooshAndDerivAten(
    const torch::Tensor &x) {
  return {SwooshAten<Constants>(x),
          torch::sigmoid(x - Constants::kShift).sub_(Constants::kCoeff)};
}

/* As the forward pass of SwooshFunction.

   @param [in] x             Any shape.
   @param [in] dropout_prob  The probability with which an element of the
                             output becomes 0; the others are divided by
                             (1 - dropout_prob).
   @return  The pair of the output, and what SwooshBackwardAten() needs of it:
            the derivative of l in eight bits (torch.uint8), rounded at random
            so that its mean is right.
 */
template <typename Constants>
std::pair<torch::Tensor, torch::Tensor> SwooshForwardAten(
    const torch::Tensor &x, float dropout_prob) {
  torch::Tensor y = SwooshAten<Constants>(x);
  torch::Tensor deriv = torch::sigmoid(x - Constants::kShift);
  if (dropout_prob != 0.0f) {
    torch::Tensor dropped = torch::rand_like(x) < dropout_prob;
    y.mul_(1.0f / (1.0f - dropout_prob)).masked_fill_(dropped, 0.0f);
    // The derivative of swoosh is that of l less kCoeff: here it is 0.
    deriv.masked_fill_(dropped, Constants::kCoeff);
  }
  deriv.mul_(255.0f / 1.005f).add_(torch::rand_like(x));
  return {y, deriv.to(torch::kByte)};
}

// Returns the gradient of x, given that of y and the second result of
// SwooshForwardAten().
template <typename Constants>
torch::Tensor SwooshBackwardAten(const torch::Tensor &y_grad,
                                 const torch::Tensor &deriv,
                                 float dropout_prob) {
  return deriv.to(torch::kFloat32)
      .mul_(1.005f / 255.0f)
      .sub_(Constants::kCoeff)
      .mul_(1.0f / (1.0f - dropout_prob))
      .mul_(y_grad);
}

}  // namespace k2

#endif  // K2_PYTHON_CSRC_TORCH_V2_AUTOGRAD_SWOOSH_ATEN_H_
