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

#include <limits>
#include <utility>
#include <vector>

#include "k2/csrc/macros.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/rnnt_pruned.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/mutual_information.h"
#include "k2/csrc/mps/rnnt_pruned.h"
#include "k2/csrc/nvtx.h"

namespace k2 {

namespace {

constexpr const char *kRnntPruned = "rnnt_pruned";

std::string KernelName(const std::string &kernel, const torch::Tensor &logits) {
  const auto type = logits.scalar_type();
  TORCH_CHECK(
      type == torch::kFloat || type == torch::kHalf || type == torch::kBFloat16,
      "logits must be of torch.float32, torch.float16 or torch.bfloat16. "
      "Given: ",
      logits.toString());
  return kernel + (type == torch::kHalf       ? "_half"
                   : type == torch::kBFloat16 ? "_bfloat"
                                              : "");
}

void CheckLongs(const char *name, const torch::Tensor &tensor,
                torch::IntArrayRef sizes) {
  TORCH_CHECK(tensor.is_mps() && tensor.scalar_type() == torch::kLong &&
                  tensor.sizes() == sizes && tensor.is_contiguous(),
              name,
              " must be a contiguous tensor of torch.int64 on mps, of "
              "shape ",
              sizes, ". Given: ", tensor.toString(), " of shape ",
              tensor.sizes());
}

// Checks types and shapes, and returns the parameters of all kernels.
// Parameters that only the backward kernel reads are not set.
RnntPrunedParams GetParams(const RnntPruned &problem) {
  const torch::Tensor &logits = problem.logits;
  TORCH_CHECK(logits.is_mps() && logits.dim() == 4 && logits.numel() != 0 &&
                  logits.is_contiguous() && problem.symbols.dim() == 2,
              "logits must be contiguous, not empty and on mps, with 4 axes. "
              "Given: ",
              logits.toString(), " of shape ", logits.sizes());
  const int64_t B = logits.size(0), T = logits.size(1), R = logits.size(2),
                C = logits.size(3), S = problem.symbols.size(1);
  CheckLongs("symbols", problem.symbols, {B, S});
  if (problem.ranges.has_value())
    CheckLongs("ranges", *problem.ranges, {B, T, R});
  if (problem.boundary.has_value())
    CheckLongs("boundary", *problem.boundary, {B, 4});
  TORCH_CHECK(problem.ranges.has_value() ? R <= S + 1 : R == S + 1,
              "logits have shape ", logits.sizes(), ", with ", S, " symbols");
  TORCH_CHECK(problem.blank >= 0 && problem.blank < C,
              "The termination symbol is ", problem.blank, " of ", C);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  TORCH_CHECK(B * T * R <= kMost && C <= kMost && (S + 1) * kRpFrames <= kMost,
              "The logits have too many rows: shape ", logits.sizes());
  RnntPrunedParams params = {};
  params.B = static_cast<int>(B);
  params.S = static_cast<int>(S);
  params.T = static_cast<int>(T);
  params.C = static_cast<int>(C);
  params.R = static_cast<int>(R);
  params.blank = static_cast<int>(problem.blank);
  params.px_columns = params.T + (problem.rnnt_type == "regular");
  params.has_ranges = problem.ranges.has_value();
  params.has_boundary = problem.boundary.has_value();
  params.constrained = problem.rnnt_type == "constrained";
  params.hat = problem.hat;
  params.delay_penalty = static_cast<float>(problem.delay_penalty);
  return params;
}

RnntReduceParams GetReduceParams(int64_t B, const std::string &reduction) {
  RnntReduceParams params = {};
  params.B = static_cast<int>(B);
  params.sums = reduction != "none";
  params.divisor = reduction == "mean" ? B : 1;
  return params;
}

torch::Tensor EmptyLoss(const torch::Tensor &scores,
                        const RnntReduceParams &params) {
  return params.sums ? torch::empty({}, scores.options())
                     : torch::empty({params.B}, scores.options());
}

// Returns the arguments that three kernels share.  Metal binds no empty buffer,
// so `other` stands in for tensors that are empty or not given.  The kernels do
// not read these stand-ins.
mps::Arguments Inputs(const RnntPruned &problem, const RnntPrunedParams &params,
                      const torch::Tensor &other) {
  return {mps::In(kRpSymbols,
                  problem.symbols.numel() != 0 ? problem.symbols : other),
          mps::In(kRpRanges, problem.ranges.value_or(other)),
          mps::In(kRpBoundary, problem.boundary.value_or(other)),
          mps::In(kRpParams, params)};
}

}  // namespace

std::pair<torch::Tensor, torch::optional<RnntPrunedSaved>> RnntPrunedForward(
    const RnntPruned &problem, bool need_grad) {
  NVTX_RANGE(K2_FUNC);
  const RnntPrunedParams params = GetParams(problem);
  const int64_t B = params.B, S = params.S, T = params.T;
  const auto options =
      problem.logits.options().dtype(torch::kFloat).requires_grad(false);
  torch::Tensor px = torch::empty({B, S, params.px_columns}, options),
                py = torch::empty({B, S + 1, T}, options),
                lse = torch::empty({B, T, params.R}, options),
                ones = torch::empty({B}, options),
                p = torch::empty({B, S + 1, T + 1}, options);
  const int64_t num_tiles = (T + kRpFrames - 1) / kRpFrames;
  mps::Launch(
      kRnntPruned, KernelName("rnnt_pruned_forward", problem.logits),
      {static_cast<uint32_t>(B * num_tiles), kRpThreads},
      mps::Join(Inputs(problem, params, problem.logits),
                {mps::In(kRpLogits, problem.logits), mps::Out(kRpLse, lse),
                 mps::Out(kRpPx, S != 0 ? px : p), mps::Out(kRpPy, py),
                 mps::Out(kRpOnes, ones)}));
  const torch::Tensor scores =
      MutualInformationMps(px, py, problem.boundary, p);
  if (!need_grad)
    return {RnntReduce(scores, problem.reduction), torch::nullopt};
  // The gradients overwrite px and py, which are not needed any more.
  MutualInformationGradientsMps(problem.boundary, p, ones, px, py);
  const RnntPrunedSaved saved = {lse,
                                 torch::empty({B, T, params.R, 2}, options)};
  const RnntReduceParams reduce = GetReduceParams(B, problem.reduction);
  torch::Tensor loss = EmptyLoss(scores, reduce);
  mps::Launch(
      kRnntPruned, "rnnt_pruned_rows",
      mps::GridOf(static_cast<int32_t>(lse.numel())),
      mps::Join(Inputs(problem, params, lse),
                {mps::In(kRpPxGrad, S != 0 ? px : py), mps::In(kRpPyGrad, py),
                 mps::In(kRpOnes, ones), mps::Out(kRpRowGrads, saved.row_grads),
                 mps::In(kRpScores, scores), mps::Out(kRpLoss, loss),
                 mps::In(kRpReduce, reduce)}));
  return {loss, saved};
}

torch::Tensor RnntPrunedBackward(const RnntPruned &problem,
                                 const RnntPrunedSaved &saved,
                                 torch::Tensor loss_grad, bool overwrite) {
  NVTX_RANGE(K2_FUNC);
  RnntPrunedParams params = GetParams(problem);
  const bool sums = problem.reduction != "none";
  TORCH_CHECK(loss_grad.is_mps() && loss_grad.scalar_type() == torch::kFloat &&
                  loss_grad.dim() == !sums &&
                  (sums || loss_grad.size(0) == params.B),
              "The gradient of the loss must be of torch.float32 on mps and of "
              "the loss's shape. Given: ",
              loss_grad.toString(), " of shape ", loss_grad.sizes());
  params.loss_scale = problem.reduction == "mean" ? -1.0f / params.B : -1.0f;
  params.loss_stride = sums ? 0 : static_cast<int>(loss_grad.stride(0));
  torch::Tensor grad =
      overwrite ? problem.logits.detach() : torch::empty_like(problem.logits);
  mps::Launch(
      kRnntPruned, KernelName("rnnt_pruned_backward", problem.logits),
      mps::GridOfSimdgroups(saved.lse.numel(), kRpThreads),
      mps::Join(Inputs(problem, params, problem.logits),
                {mps::In(kRpLogits, problem.logits), mps::In(kRpLse, saved.lse),
                 mps::In(kRpRowGrads, saved.row_grads),
                 mps::In(kRpLossGrad, loss_grad), mps::Out(kRpGrad, grad)}));
  return grad;
}

torch::Tensor RnntReduce(const torch::Tensor &scores,
                         const std::string &reduction) {
  const RnntReduceParams params = GetReduceParams(scores.size(0), reduction);
  torch::Tensor loss = EmptyLoss(scores, params);
  mps::Launch(kRnntPruned, "rnnt_reduce", {1, kSimdWidth},
              {mps::In(kRpScores, scores), mps::Out(kRpLoss, loss),
               mps::In(kRpReduce, params)});
  return loss;
}

}  // namespace k2
