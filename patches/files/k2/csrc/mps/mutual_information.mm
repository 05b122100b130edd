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

#include "k2/csrc/mps/mutual_information.h"

#include <algorithm>
#include <limits>
#include <string>

#include "k2/csrc/macros.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/mutual_information.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/nvtx.h"

namespace k2 {

namespace {

constexpr const char *kSource = "mutual_information";

using Params = MutualInformationParams;

// Checks types and shapes, and returns what the kernels need to know of them.
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
  // The kernels also compute indexes of cells behind the last, which they then
  // limit.
  TORCH_CHECK(
      (S + 2 * kMiMaxStrips * kMiRows) * (T + 1) + T + kMiScratchMargin <=
          std::numeric_limits<int32_t>::max(),
      "A sequence pair of lengths ", S, " and ", T, " has too many cells");
  if (boundary.has_value()) {
    TORCH_CHECK(boundary->is_mps() && boundary->scalar_type() == torch::kLong &&
                    boundary->sizes() == torch::IntArrayRef({B, 4}),
                "boundary must be a tensor of torch.int64 on mps of shape ",
                torch::IntArrayRef({B, 4}), ". Given: ", boundary->toString(),
                " of shape ", boundary->sizes());
  }
  return Params{static_cast<int>(S), static_cast<int>(T), modified ? -1 : 0,
                boundary.has_value(), 0};
}

// Metal binds no empty buffer.  In the place of an empty input there is a row
// that is read, and dropped; an empty output is not touched.
torch::Tensor Input(const torch::Tensor &tensor, const torch::Tensor &p) {
  return tensor.numel() != 0 ? tensor : torch::empty({p.size(2)}, p.options());
}

const torch::Tensor &Output(const torch::Tensor &tensor,
                            const torch::Tensor &p) {
  return tensor.numel() != 0 ? tensor : p;
}

// One threadgroup for each sequence, with threads for as many strips of rows
// as are needed or fit, and an equal number of them in each pass.  Allocates
// `scratch`.
mps::Grid GetGrid(const std::string &kernel, const torch::Tensor &p,
                  int64_t scratch_rows, Params *params,
                  torch::Tensor *scratch) {
  const int64_t strips = (params->S + 1 + kMiRows - 1) / kMiRows,
                most = std::min<int64_t>(
                    kMiMaxStrips,
                    mps::MaxUnits(kSource, kernel, p, kMiThreadsPerStrip)),
                passes = (strips + most - 1) / most,
                at_once = (strips + passes - 1) / passes;
  params->scratch_stride = passes > 1 ? params->T + kMiScratchMargin : 0;
  // Metal binds no empty buffer.
  *scratch = torch::empty(
      {p.size(0), scratch_rows, std::max(params->scratch_stride, 1)},
      p.options());
  return {static_cast<uint32_t>(p.size(0)),
          static_cast<uint32_t>(at_once * kMiThreadsPerStrip)};
}

}  // namespace

torch::Tensor MutualInformationMps(
    torch::Tensor px, torch::Tensor py,
    const torch::optional<torch::Tensor> &boundary, torch::Tensor p) {
  NVTX_RANGE(K2_FUNC);
  Params params = GetParams(px, py, boundary, p);
  torch::Tensor ans = torch::empty({p.size(0)}, p.options());
  if (p.numel() == 0) return ans;

  px = px.to(torch::kFloat).contiguous();
  py = py.to(torch::kFloat).contiguous();
  torch::Tensor bound = boundary.has_value() ? boundary->contiguous() : p;
  const char *kernel = "mutual_information_forward";
  torch::Tensor scratch;
  mps::Grid grid = GetGrid(kernel, p, 2, &params, &scratch);
  mps::Launch(kSource, kernel, grid,
              {Input(px, p), Input(py, p), bound, p, ans, scratch, params});
  return ans;
}

std::vector<torch::Tensor> MutualInformationBackwardMps(
    torch::Tensor px, torch::Tensor py,
    const torch::optional<torch::Tensor> &boundary, torch::Tensor p,
    torch::Tensor ans_grad) {
  NVTX_RANGE(K2_FUNC);
  Params params = GetParams(px, py, boundary, p);
  TORCH_CHECK(ans_grad.is_mps() && ans_grad.is_floating_point() &&
                  ans_grad.sizes() == torch::IntArrayRef({p.size(0)}),
              "ans_grad must be a floating-point tensor on mps of shape [",
              p.size(0), "]. Given: ", ans_grad.toString(), " of shape ",
              ans_grad.sizes());

  // Without a boundary every element of them is written.
  torch::Tensor px_grad = boundary.has_value()
                              ? torch::zeros(px.sizes(), p.options())
                              : torch::empty(px.sizes(), p.options()),
                py_grad = boundary.has_value()
                              ? torch::zeros(py.sizes(), p.options())
                              : torch::empty(py.sizes(), p.options());
  const auto type = px.scalar_type();
  if (p.numel() == 0) return {px_grad.to(type), py_grad.to(type)};

  ans_grad = ans_grad.to(torch::kFloat).contiguous();
  torch::Tensor bound = boundary.has_value() ? boundary->contiguous() : p;
  const char *kernel = "mutual_information_backward";
  torch::Tensor scratch;
  mps::Grid grid = GetGrid(kernel, p, 1, &params, &scratch);
  mps::Launch(kSource, kernel, grid,
              {bound, p, ans_grad, Output(px_grad, p), Output(py_grad, p),
               scratch, params});
  return {px_grad.to(type), py_grad.to(type)};
}

}  // namespace k2
