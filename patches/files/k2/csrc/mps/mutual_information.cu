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

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "k2/csrc/macros.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/mutual_information.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/mutual_information.h"
#include "k2/csrc/nvtx.h"

namespace k2 {

namespace {

constexpr const char *kMutualInformation = "mutual_information";

using Params = MutualInformationParams;

// Checks types and shapes, and returns the parameters for the first band.
Params GetParams(const torch::Tensor &px, const torch::Tensor &py,
                 const torch::optional<torch::Tensor> &boundary,
                 const torch::Tensor &p) {
  const auto type = px.scalar_type();
  TORCH_CHECK(
      type == torch::kFloat || type == torch::kHalf || type == torch::kBFloat16,
      "px and py must be of torch.float32, torch.float16 or "
      "torch.bfloat16. Given: ",
      px.toString());
  for (const torch::Tensor &x : {px, py, p}) {
    const auto expected = x.is_same(p) ? torch::kFloat : type;
    TORCH_CHECK(x.is_mps() && x.scalar_type() == expected && x.dim() == 3,
                "px, py and p must be 3-dimensional tensors on mps, px and py "
                "of one type and p of torch.float32. Given: ",
                x.toString(), " of shape ", x.sizes());
  }
  const int64_t B = px.size(0), S = px.size(1), T = py.size(2);
  const bool modified = px.size(2) == T;
  TORCH_CHECK(modified || px.size(2) == T + 1, "px has shape ", px.sizes(),
              ", which does not go with py of shape ", py.sizes());
  TORCH_CHECK(py.size(0) == B && py.size(1) == S + 1, "py has shape ",
              py.sizes(), ", which does not go with px of shape ", px.sizes());
  TORCH_CHECK(
      p.sizes() == torch::IntArrayRef({B, S + 1, T + 1}) && p.is_contiguous(),
      "p must be contiguous, of shape ", torch::IntArrayRef({B, S + 1, T + 1}),
      ". Given: ", p.sizes());
  // The kernels compute the index of an element within a sequence in 32 bits.
  // The kernels also compute indexes of rows and columns after the last ones,
  // but read and write nothing there.
  TORCH_CHECK((S + kMiMaxRows) * (T + 1) + 2 * kMiColumns <=
                  std::numeric_limits<int32_t>::max(),
              "A sequence pair of lengths ", S, " and ", T,
              " has too many cells");
  if (boundary.has_value()) {
    TORCH_CHECK(boundary->is_mps() && boundary->scalar_type() == torch::kLong &&
                    boundary->sizes() == torch::IntArrayRef({B, 4}),
                "boundary must be a tensor of torch.int64 on mps of shape ",
                torch::IntArrayRef({B, 4}), ". Given: ", boundary->toString(),
                " of shape ", boundary->sizes());
  }
  Params params = {};
  params.S = static_cast<int>(S);
  params.T = static_cast<int>(T);
  params.t_offset = modified ? -1 : 0;
  params.has_boundary = boundary.has_value();
  return params;
}

// Metal binds no empty buffer.  So Input() replaces an empty input by a row of
// memory.  The kernel loads this row and does not use the values.  Output()
// replaces an empty output by `p`, and the kernel writes nothing there.
torch::Tensor Input(const torch::Tensor &tensor, const torch::Tensor &p) {
  return tensor.numel() != 0 ? tensor : torch::empty({p.size(2)}, p.options());
}

const torch::Tensor &Output(const torch::Tensor &tensor,
                            const torch::Tensor &p) {
  return tensor.numel() != 0 ? tensor : p;
}

/* Encodes a kernel for all sequences, one dispatch for each band of rows.

   @param [in] kernel     The kernel's name for torch.float32.
   @param [in] type       The type of px and py.
   @param [in] p          As for MutualInformationMps().
   @param [in] arguments  All arguments except kMiEdges and kMiParams.
   @param [in] params     What GetParams() returned.
 */
void LaunchBands(const std::string &kernel, torch::ScalarType type,
                 const torch::Tensor &p, const mps::Arguments &arguments,
                 Params params) {
  const int64_t B = p.size(0), num_rows = p.size(1);
  const std::string name = kernel +
                           (type == torch::kHalf       ? "_half"
                            : type == torch::kBFloat16 ? "_bfloat"
                                                       : "") +
                           (num_rows > kMiFewRows ? "_tall" : "");
  const uint32_t threads =
      mps::FitThreads(kMutualInformation, name, p,
                      std::min<int64_t>(num_rows, kMiMaxRows), kSimdWidth);
  const int64_t num_bands = (num_rows + threads - 1) / threads;
  const torch::Tensor edges =
      num_bands == 1 ? p : torch::empty({B, 2, p.size(2)}, p.options());
  for (; params.band != num_bands; ++params.band)
    mps::Launch(kMutualInformation, name, {static_cast<uint32_t>(B), threads},
                mps::Join(arguments, {mps::Out(kMiEdges, edges),
                                      mps::In(kMiParams, params)}));
}

}  // namespace

torch::Tensor MutualInformationMps(
    torch::Tensor px, torch::Tensor py,
    const torch::optional<torch::Tensor> &boundary, torch::Tensor p) {
  NVTX_RANGE(K2_FUNC);
  const Params params = GetParams(px, py, boundary, p);
  torch::Tensor ans = torch::empty({p.size(0)}, p.options());
  if (p.numel() == 0) return ans;

  px = px.contiguous();
  py = py.contiguous();
  torch::Tensor bound = boundary.has_value() ? boundary->contiguous() : p;
  LaunchBands(
      "mutual_information_forward", px.scalar_type(), p,
      {mps::In(kMiPx, Input(px, p)), mps::In(kMiPy, Input(py, p)),
       mps::In(kMiBoundary, bound), mps::Out(kMiP, p), mps::Out(kMiAns, ans)},
      params);
  return ans;
}

std::vector<torch::Tensor> MutualInformationBackwardMps(
    torch::Tensor px, torch::Tensor py,
    const torch::optional<torch::Tensor> &boundary, torch::Tensor p,
    torch::Tensor ans_grad) {
  NVTX_RANGE(K2_FUNC);
  const Params params = GetParams(px, py, boundary, p);
  TORCH_CHECK(ans_grad.is_mps() && ans_grad.is_floating_point() &&
                  ans_grad.sizes() == torch::IntArrayRef({p.size(0)}),
              "ans_grad must be a floating-point tensor on mps of shape [",
              p.size(0), "]. Given: ", ans_grad.toString(), " of shape ",
              ans_grad.sizes());

  // Without a boundary the kernel writes every element of the gradients.
  torch::Tensor px_grad = boundary.has_value()
                              ? torch::zeros(px.sizes(), px.options())
                              : torch::empty(px.sizes(), px.options()),
                py_grad = boundary.has_value()
                              ? torch::zeros(py.sizes(), py.options())
                              : torch::empty(py.sizes(), py.options());
  if (p.numel() == 0) return {px_grad, py_grad};

  ans_grad = ans_grad.to(torch::kFloat).contiguous();
  torch::Tensor bound = boundary.has_value() ? boundary->contiguous() : p;
  LaunchBands(
      "mutual_information_backward", px.scalar_type(), p,
      {mps::In(kMiBoundary, bound), mps::In(kMiP, p),
       mps::In(kMiAnsGrad, ans_grad), mps::Out(kMiPxGrad, Output(px_grad, p)),
       mps::Out(kMiPyGrad, Output(py_grad, p))},
      params);
  return {px_grad, py_grad};
}

}  // namespace k2
