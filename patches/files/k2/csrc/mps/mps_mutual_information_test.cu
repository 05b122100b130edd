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

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "k2/csrc/mps/mps_context.h"
#include "k2/csrc/mps/mutual_information.h"
#include "torch/all.h"

namespace k2 {

// Returns the score of (S, T), [B], computed by ATen's operators, so that
// autograd can compute the gradients.
static torch::Tensor Reference(torch::Tensor px, torch::Tensor py) {
  const int64_t S = px.size(1), T = py.size(2);
  std::vector<std::vector<torch::Tensor>> p(S + 1,
                                            std::vector<torch::Tensor>(T + 1));
  p[0][0] = torch::zeros({px.size(0)}, px.options());
  for (int64_t s = 0; s <= S; ++s) {
    for (int64_t t = 0; t <= T; ++t) {
      torch::Tensor &here = p[s][t];
      if (s > 0) here = p[s - 1][t] + px.select(1, s - 1).select(1, t);
      if (t > 0) {
        torch::Tensor from_left =
            p[s][t - 1] + py.select(1, s).select(1, t - 1);
        here = s > 0 ? torch::logaddexp(here, from_left) : from_left;
      }
    }
  }
  return p[S][T];
}

TEST(MpsMutualInformationTest, ScoresAndGradientsEqualTheReference) {
  if (!HasMps()) GTEST_SKIP() << "There is no mps device.";
  torch::manual_seed(1);
  const int64_t B = 3;
  // A pass takes one dispatch for the first three lengths, and several for 515.
  for (int64_t S : {0, 1, 5, 515}) {
    const int64_t T = 6;
    torch::Tensor px = torch::randn({B, S, T + 1}),
                  py = torch::randn({B, S + 1, T}),
                  px_double = px.to(torch::kDouble).requires_grad_(true),
                  py_double = py.to(torch::kDouble).requires_grad_(true),
                  expected = Reference(px_double, py_double);
    expected.sum().backward();

    px = px.to(kTorchMps);
    py = py.to(kTorchMps);
    torch::Tensor p = torch::empty({B, S + 1, T + 1}, px.options()),
                  given = MutualInformationMps(px, py, {}, p);
    std::vector<torch::Tensor> grads = MutualInformationBackwardMps(
        px, py, {}, p, torch::ones({B}, px.options()));
    auto near = [](const torch::Tensor &x, const torch::Tensor &y) {
      return torch::allclose(x.cpu(), y.to(torch::kFloat), 1e-5, 1e-4);
    };
    EXPECT_TRUE(near(given, expected)) << "S is " << S;
    if (S > 0) {
      EXPECT_TRUE(near(grads[0], px_double.grad())) << "S is " << S;
    }
    EXPECT_TRUE(near(grads[1], py_double.grad())) << "S is " << S;
  }
}

}  // namespace k2
