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
#include <utility>

#include "k2/csrc/macros.h"
#include "k2/csrc/mps/kernels/rnnt_pruning.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/rnnt_pruning.h"
#include "k2/csrc/nvtx.h"

namespace k2 {

namespace {

constexpr const char *kRnntPruning = "rnnt_pruning";
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

// Returns the suffix of a kernel's name for tensors of this type.
std::string Suffix(torch::ScalarType type) {
  TORCH_CHECK(
      type == torch::kFloat || type == torch::kHalf || type == torch::kBFloat16,
      "k2 prunes tensors of torch.float32, torch.float16 or torch.bfloat16. "
      "Given: ",
      type);
  return type == torch::kHalf       ? "_half"
         : type == torch::kBFloat16 ? "_bfloat"
                                    : "";
}

void Check(const char *name, const torch::Tensor &tensor,
           torch::ScalarType type, torch::IntArrayRef sizes) {
  TORCH_CHECK(tensor.is_mps() && tensor.scalar_type() == type &&
                  tensor.sizes() == sizes && tensor.is_contiguous() &&
                  tensor.numel() != 0,
              name, " must be a contiguous tensor of ", type,
              " on mps, with elements and of shape ", sizes,
              ". Given: ", tensor.toString(), " of shape ", tensor.sizes());
}

RnntPruningParams GetParams(const torch::Tensor &ranges, int64_t S, int64_t D) {
  TORCH_CHECK(ranges.dim() == 3,
              "ranges must have 3 axes. Given: ", ranges.sizes());
  Check("ranges", ranges, torch::kLong, ranges.sizes());
  TORCH_CHECK(ranges.numel() <= kMost && S < kMost && D <= kMost,
              "There are too many ranges: ", ranges.sizes());
  RnntPruningParams params = {};
  params.B = static_cast<int>(ranges.size(0));
  params.T = static_cast<int>(ranges.size(1));
  params.R = static_cast<int>(ranges.size(2));
  params.S = static_cast<int>(S);
  params.D = static_cast<int>(D);
  return params;
}

}  // namespace

torch::Tensor RnntPruneRanges(torch::Tensor px_grad, torch::Tensor py_grad,
                              torch::Tensor boundary, int64_t s_range) {
  NVTX_RANGE(K2_FUNC);
  TORCH_CHECK(px_grad.dim() == 3 && py_grad.dim() == 3,
              "The gradients must have 3 axes. Given: ", px_grad.sizes(), ", ",
              py_grad.sizes());
  const int64_t B = px_grad.size(0), S = px_grad.size(1), T = py_grad.size(2),
                columns = px_grad.size(2);
  Check("px_grad", px_grad, torch::kFloat, {B, S, columns});
  Check("py_grad", py_grad, torch::kFloat, {B, S + 1, T});
  Check("boundary", boundary, torch::kLong, {B, 4});
  TORCH_CHECK(columns == T || columns == T + 1, "px_grad has ", columns,
              " columns for ", T, " frames");
  // The kernel counts up to begin + s_range * T in 32 bits.
  TORCH_CHECK(s_range >= 1 && s_range <= S + 1 && (S + 1) * (T + 1) < kMost / 2,
              "s_range is ", s_range, ", for ", S, " symbols and ", T,
              " frames");
  RnntRangesParams params = {};
  params.S = static_cast<int>(S);
  params.T = static_cast<int>(T);
  params.R = static_cast<int>(s_range);
  params.px_columns = static_cast<int>(columns);
  params.most_step = columns == T ? 1 : params.R - 1;
  torch::Tensor ranges = torch::empty({B, T, s_range}, boundary.options());
  mps::Launch(kRnntPruning, "rnnt_prune_ranges",
              {static_cast<uint32_t>(B), kRnntPruningRangesThreads},
              {mps::In(kRnntPruningPxGrad, px_grad),
               mps::In(kRnntPruningPyGrad, py_grad),
               mps::In(kRnntPruningBoundary, boundary),
               mps::Out(kRnntPruningRanges, ranges),
               mps::In(kRnntPruningParams, params)});
  return ranges;
}

torch::Tensor RnntPrune(const torch::optional<torch::Tensor> &am,
                        torch::Tensor lm, torch::Tensor ranges) {
  NVTX_RANGE(K2_FUNC);
  TORCH_CHECK(lm.dim() == 3, "lm must have 3 axes. Given: ", lm.sizes());
  const int64_t D = lm.size(2);
  const RnntPruningParams params = GetParams(ranges, lm.size(1) - 1, D);
  const auto type = lm.scalar_type();
  Check("lm", lm, type, {params.B, params.S + 1, D});
  if (am.has_value()) Check("am", *am, type, {params.B, params.T, D});
  torch::Tensor out = torch::empty({params.B, params.T, params.R, D},
                                   lm.options().requires_grad(false));
  constexpr int64_t kRows = kRnntPruningRowThreads / int64_t{kSimdWidth};
  const std::string name = am.has_value() ? "rnnt_joiner_input" : "rnnt_prune";
  mps::Launch(
      kRnntPruning, name + Suffix(type),
      {static_cast<uint32_t>((ranges.numel() + kRows - 1) / kRows),
       kRnntPruningRowThreads},
      {mps::In(kRnntPruningAm, am.value_or(lm)), mps::In(kRnntPruningLm, lm),
       mps::In(kRnntPruningRanges, ranges), mps::Out(kRnntPruningOut, out),
       mps::In(kRnntPruningParams, params)});
  return out;
}

std::pair<torch::Tensor, torch::Tensor> RnntPruneBackward(
    torch::Tensor out_grad, const torch::optional<torch::Tensor> &out,
    torch::Tensor ranges, int64_t num_symbols, bool needs_am, bool needs_lm) {
  NVTX_RANGE(K2_FUNC);
  TORCH_CHECK(out_grad.dim() == 4,
              "The gradient must have 4 axes. Given: ", out_grad.sizes());
  const int64_t D = out_grad.size(3);
  RnntPruningParams params = GetParams(ranges, num_symbols, D);
  const int64_t B = params.B, T = params.T;
  const auto type = out_grad.scalar_type();
  Check("The gradient", out_grad, type, {B, T, params.R, D});
  if (out.has_value()) Check("The output", *out, type, out_grad.sizes());
  params.has_am_grad = needs_am;
  params.has_lm_grad = needs_lm;
  const auto options = out_grad.options().requires_grad(false);
  std::pair<torch::Tensor, torch::Tensor> grads;
  if (needs_am) grads.first = torch::empty({B, T, D}, options);
  if (needs_lm) grads.second = torch::empty({B, num_symbols + 1, D}, options);
  if (!needs_am && !needs_lm) return grads;
  constexpr int64_t kFrames = kRnntPruningBackwardThreads / int64_t{kSimdWidth};
  const int64_t num_groups = (needs_lm ? B * (num_symbols + 1) : 0) +
                             (needs_am ? (B * T + kFrames - 1) / kFrames : 0);
  TORCH_CHECK(num_groups * kRnntPruningBackwardThreads <= kMost,
              "There are too many rows and columns: ", out_grad.sizes());
  const std::string name =
      out.has_value() ? "rnnt_joiner_input_backward" : "rnnt_prune_backward";
  // The kernel does not write a gradient that is not needed, so the other
  // gradient can take the place of this gradient among the arguments.
  mps::Launch(
      kRnntPruning, name + Suffix(type),
      {static_cast<uint32_t>(num_groups), kRnntPruningBackwardThreads},
      {mps::In(kRnntPruningOutGrad, out_grad),
       mps::In(kRnntPruningOut, out.value_or(out_grad)),
       mps::In(kRnntPruningRanges, ranges),
       mps::Out(kRnntPruningAmGrad, needs_am ? grads.first : grads.second),
       mps::Out(kRnntPruningLmGrad, needs_lm ? grads.second : grads.first),
       mps::In(kRnntPruningParams, params)});
  return grads;
}

}  // namespace k2
