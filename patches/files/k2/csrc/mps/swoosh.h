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

#ifndef K2_CSRC_MPS_SWOOSH_H_
#define K2_CSRC_MPS_SWOOSH_H_

#include <utility>

#include "k2/csrc/mps/mps_context.h"
#include "torch/all.h"

namespace k2 {

// The functions of k2/python/csrc/torch/v2/autograd/swoosh.cu on the GPU.  Each
// function encodes one dispatch and does not wait.
//
// x is on mps, of any shape.  torch.float32, torch.float16 and torch.bfloat16
// are read as they are; other types become torch.float32 first.  Results are on
// mps, of x's shape, and torch.float32 unless stated otherwise.  If the
// elements of x fill memory without gaps, in any order of axes, x is not
// copied, and the results have the strides of x.

enum class SwooshKind { kL, kR };

// Returns swoosh(x), within 2 units in the last place.
torch::Tensor SwooshMps(SwooshKind kind, torch::Tensor x);

// Returns swoosh(x) and swoosh'(x), each within 2 units in the last place.
std::pair<torch::Tensor, torch::Tensor> SwooshAndDerivMps(SwooshKind kind,
                                                          torch::Tensor x);

/* Computes swoosh(x) with dropout, for training.

   @param [in] dropout_prob  The probability with which an element of the output
                             becomes 0; the other elements are divided by
                             (1 - dropout_prob).
   @return  The output, and the derivative that SwooshBackwardMps() needs.  The
            derivative has eight bits (torch.uint8) and is rounded at random,
            so that its expected value has no rounding error.  The next 64 bits
            of torch's generator for the CPU are the seed of all random numbers.
            So torch.manual_seed(), or a restored state of that generator,
            reproduces these numbers.
 */
std::pair<torch::Tensor, torch::Tensor> SwooshForwardMps(SwooshKind kind,
                                                         torch::Tensor x,
                                                         float dropout_prob);

/* Returns the gradient of x.

   @param [in] y_grad        The gradient of SwooshForwardMps()'s output.
   @param [in] deriv         The second result of SwooshForwardMps().
   @param [in] dropout_prob  As given to SwooshForwardMps().
   @param [in] type          The type of x.  The result is of the type of x if
                             this type is torch.float32, torch.float16 or
                             torch.bfloat16, else of torch.float32.
 */
torch::Tensor SwooshBackwardMps(const torch::Tensor &y_grad,
                                const torch::Tensor &deriv, float dropout_prob,
                                torch::ScalarType type);

#if !K2_WITH_MPS

// GetMpsContext() throws an error which says that k2 was not built with MPS.

inline torch::Tensor SwooshMps(SwooshKind, torch::Tensor) {
  GetMpsContext();
  return {};
}

inline std::pair<torch::Tensor, torch::Tensor> SwooshAndDerivMps(
    SwooshKind, torch::Tensor) {
  GetMpsContext();
  return {};
}

inline std::pair<torch::Tensor, torch::Tensor> SwooshForwardMps(SwooshKind,
                                                                torch::Tensor,
                                                                float) {
  GetMpsContext();
  return {};
}

inline torch::Tensor SwooshBackwardMps(const torch::Tensor &,
                                       const torch::Tensor &, float,
                                       torch::ScalarType) {
  GetMpsContext();
  return {};
}

#endif  // !K2_WITH_MPS

}  // namespace k2

#endif  // K2_CSRC_MPS_SWOOSH_H_
