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

#include <string>
#include <tuple>
#include <utility>

#include "k2/csrc/macros.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/rnnt_smoothed.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/mutual_information.h"
#include "k2/csrc/mps/rnnt_pruned.h"
#include "k2/csrc/mps/rnnt_smoothed.h"
#include "k2/csrc/nvtx.h"

namespace k2 {

namespace {

constexpr const char *kRnntSmoothed = "rnnt_smoothed";
constexpr const char *kRnntSmoothedGrad = "rnnt_smoothed_grad";

// Turns autocast off.  Autocast would compute the matrix products in half
// precision, in which the exponentials of usual logits underflow.
class NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

// Checks the inputs, and returns the parameters that px and py have in common
// with a loss.
RnntSmoothedParams GetRnntParams(const RnntSmoothed &in) {
  RnntSmoothedParams params = {};
  params.B = in.am.size(0);
  params.S = in.lm.size(1) - 1;
  params.T = in.am.size(1);
  params.C = in.am.size(2);
  for (const torch::Tensor &x : {in.lm, in.am})
    TORCH_CHECK(x.is_mps() && x.scalar_type() == torch::kFloat &&
                    x.is_contiguous() && x.dim() == 3 && x.numel() != 0,
                "lm and am must be contiguous tensors of torch.float32 on mps");
  TORCH_CHECK(
      in.lm.size(0) == params.B && in.lm.size(2) == params.C &&
          in.symbols.sizes() == torch::IntArrayRef({params.B, params.S}) &&
          in.symbols.is_mps() && in.symbols.is_contiguous() &&
          in.symbols.scalar_type() == torch::kLong,
      "symbols or lm do not fit the shape of am");
  TORCH_CHECK(0 <= in.termination_symbol && in.termination_symbol < params.C,
              "There is no symbol ", in.termination_symbol);
  params.blank = in.termination_symbol;
  params.px_columns = params.T + (in.rnnt_type == "regular");
  params.constrained = in.rnnt_type == "constrained";
  params.has_boundary = in.boundary.has_value();
  params.combined_scale = 1.0 - in.lm_only_scale - in.am_only_scale;
  params.lm_scale = in.lm_only_scale;
  params.am_scale = in.am_only_scale;
  params.delay_penalty = in.delay_penalty;
  return params;
}

RnntSmoothedParams GetLogprobsParams(const RnntSmoothed &in) {
  RnntSmoothedParams params = GetRnntParams(in);
  params.grad_mode = kSmoothedModeOne;
  return params;
}

RnntSmoothedParams GetLossParams(const RnntSmoothed &in,
                                 const std::string &reduction) {
  RnntSmoothedParams params = GetRnntParams(in);
  params.skips_padding = true;
  params.grad_mode = reduction == "none"  ? kSmoothedModeNone
                     : reduction == "sum" ? kSmoothedModeSum
                                          : kSmoothedModeMean;
  return params;
}

// Returns `tensor`.  If `tensor` is empty or not given, returns `other`,
// because Metal binds no empty buffer.  The kernels do not use `other`.
torch::Tensor Bound(const torch::optional<torch::Tensor> &tensor,
                    const torch::Tensor &other) {
  return tensor.has_value() && tensor->numel() != 0 ? *tensor : other;
}

struct RnntSmoothedScores {
  torch::Tensor px, py;
  torch::optional<torch::Tensor> ones;  // [B], given if params.has_grads
};

// Computes saved->unigram and saved->am_log_sum.
void ComputeAmOnly(const RnntSmoothed &in, const RnntSmoothedParams &params,
                   const torch::Tensor &boundary, RnntSmoothedSaved *saved) {
  const auto options = in.am.options().requires_grad(false);
  saved->unigram = torch::empty({params.C}, options);
  saved->am_log_sum = torch::empty({params.B, params.T}, options);
  mps::Launch(
      kRnntSmoothed, "rnnt_smoothed_unigram",
      {static_cast<uint32_t>((params.C + 31) / 32), kSmoothedThreads},
      {mps::In(kSmoothedLm, in.lm), mps::In(kSmoothedLmMax, saved->lm_max),
       mps::In(kSmoothedLmLogSum, saved->lm_log_sum),
       mps::Out(kSmoothedUnigram, saved->unigram),
       mps::In(kSmoothedParams, params)});
  mps::Launch(
      kRnntSmoothed, "rnnt_smoothed_am_only",
      mps::GridOfSimdgroups(int64_t{params.B} * params.T, kSmoothedThreads),
      {mps::In(kSmoothedAm, in.am), mps::In(kSmoothedAmMax, saved->am_max),
       mps::In(kSmoothedUnigram, saved->unigram),
       mps::In(kSmoothedBoundary, boundary),
       mps::Out(kSmoothedAmLogSum, saved->am_log_sum),
       mps::In(kSmoothedParams, params)});
}

// Computes px and py.  If params.has_grads, allocates saved->px_grad and
// saved->py_grad, and writes 0 to their elements outside of the boundary.
RnntSmoothedScores GetRnntScores(const RnntSmoothed &in,
                                 const RnntSmoothedParams &params,
                                 RnntSmoothedSaved *saved) {
  const int64_t B = params.B, S = params.S, T = params.T, C = params.C;
  const auto options = in.am.options().requires_grad(false);
  auto empty = [&](torch::IntArrayRef sizes) {
    return torch::empty(sizes, options);
  };
  saved->am_exp = empty({B, T, C});
  saved->lm_exp = empty({B, S + 1, C});
  saved->am_max = empty({B, T});
  saved->lm_max = empty({B, S + 1});
  saved->lm_log_sum = empty({B, S + 1});
  saved->next = torch::empty({B, S}, options.dtype(torch::kInt));
  const torch::Tensor symbols = Bound(in.symbols, saved->am_max),
                      boundary = Bound(in.boundary, saved->am_max);
  mps::Launch(
      kRnntSmoothed, "rnnt_smoothed_rows",
      mps::GridOfSimdgroups(B * (T + S + 1), kSmoothedThreads),
      {mps::In(kSmoothedAm, in.am), mps::In(kSmoothedLm, in.lm),
       mps::In(kSmoothedSymbols, symbols), mps::In(kSmoothedBoundary, boundary),
       mps::Out(kSmoothedAmExp, saved->am_exp),
       mps::Out(kSmoothedLmExp, saved->lm_exp),
       mps::Out(kSmoothedAmMax, saved->am_max),
       mps::Out(kSmoothedLmMax, saved->lm_max),
       mps::Out(kSmoothedLmLogSum, saved->lm_log_sum),
       mps::Out(kSmoothedNext, Bound(saved->next, saved->am_max)),
       mps::In(kSmoothedParams, params)});
  // Metal binds no empty buffer.  So am_max takes the place of tensors that the
  // kernels do not read.
  const torch::Tensor products =
      params.combined_scale != 0
          ? torch::bmm(saved->lm_exp, saved->am_exp.transpose(1, 2))
          : saved->am_max;
  if (params.am_scale != 0)
    ComputeAmOnly(in, params, boundary, saved);
  else
    saved->unigram = saved->am_log_sum = saved->am_max;
  saved->log_sums = empty({B, S + 1, T});
  RnntSmoothedScores ans;
  ans.px = empty({B, S, params.px_columns});
  ans.py = empty({B, S + 1, T});
  if (params.has_grads) {
    saved->px_grad = empty(ans.px.sizes());
    saved->py_grad = empty(ans.py.sizes());
    ans.ones = empty({B});
  }
  const int64_t tiles = B * (S / kSmoothedTile + 1) *
                        ((params.px_columns - 1) / kSmoothedTile + 1);
  mps::Launch(
      kRnntSmoothed, "rnnt_smoothed_scores",
      {static_cast<uint32_t>(tiles), kSmoothedThreads},
      {mps::In(kSmoothedAm, in.am), mps::In(kSmoothedLm, in.lm),
       mps::In(kSmoothedSymbols, symbols), mps::In(kSmoothedBoundary, boundary),
       mps::In(kSmoothedAmMax, saved->am_max),
       mps::In(kSmoothedLmMax, saved->lm_max),
       mps::In(kSmoothedLmLogSum, saved->lm_log_sum),
       mps::In(kSmoothedProducts, products),
       mps::In(kSmoothedUnigram, saved->unigram),
       mps::In(kSmoothedAmLogSum, saved->am_log_sum),
       mps::Out(kSmoothedPx, Bound(ans.px, ans.py)),
       mps::Out(kSmoothedPy, ans.py),
       mps::Out(kSmoothedLogSums, saved->log_sums),
       mps::Out(kSmoothedPxGrad, Bound(saved->px_grad, ans.py)),
       mps::Out(kSmoothedPyGrad, Bound(saved->py_grad, ans.py)),
       mps::Out(kSmoothedOnes, Bound(ans.ones, ans.py)),
       mps::In(kSmoothedParams, params)});
  return ans;
}

// Computes the gradients of lm and am.  `loss_grad` is not needed if
// params.grad_mode is kSmoothedModeOne.
std::pair<torch::Tensor, torch::Tensor> GetRnntGrads(
    const RnntSmoothed &in, const RnntSmoothedParams &params,
    const RnntSmoothedSaved &saved, torch::Tensor px_grad,
    torch::Tensor py_grad, torch::optional<torch::Tensor> loss_grad) {
  const int64_t B = params.B, S = params.S, T = params.T, C = params.C;
  const auto options = in.am.options().requires_grad(false);
  px_grad = px_grad.to(torch::kFloat).contiguous();
  py_grad = py_grad.to(torch::kFloat).contiguous();
  if (loss_grad.has_value())
    loss_grad = loss_grad->to(torch::kFloat).contiguous();
  const torch::Tensor symbols = Bound(in.symbols, saved.am_max),
                      boundary = Bound(in.boundary, saved.am_max),
                      px = Bound(px_grad, py_grad),
                      scale = Bound(loss_grad, py_grad),
                      sums = torch::empty({B, S + 1, 3}, options);
  const bool has_products = params.combined_scale != 0;
  const torch::Tensor weights =
      has_products ? torch::empty({B, S + 1, T}, options) : sums;
  // The arguments of every kernel that reads the gradients of px and py.
  const mps::Arguments of_scores = {mps::In(kSmoothedPxGrad, px),
                                    mps::In(kSmoothedPyGrad, py_grad),
                                    mps::In(kSmoothedBoundary, boundary),
                                    mps::In(kSmoothedLossGrad, scale),
                                    mps::In(kSmoothedLogSums, saved.log_sums),
                                    mps::In(kSmoothedParams, params)};
  mps::Launch(kRnntSmoothedGrad, "rnnt_smoothed_weights",
              mps::GridOfSimdgroups(B * (S + 1), kSmoothedThreads),
              mps::Join(of_scores, {mps::Out(kSmoothedWeights, weights),
                                    mps::Out(kSmoothedSums, sums)}));
  torch::Tensor am_grad, lm_grad;
  if (has_products) {
    am_grad = torch::bmm(weights.transpose(1, 2), saved.lm_exp);
    lm_grad = torch::bmm(weights, saved.am_exp);
  } else {
    am_grad = torch::empty({B, T, C}, options);
    lm_grad = torch::empty({B, S + 1, C}, options);
  }
  torch::Tensor unigram_grad = saved.unigram;
  if (params.am_scale != 0) {
    const int64_t pieces = (B * T - 1) / kSmoothedFramesOfPiece + 1;
    const torch::Tensor parts = torch::empty({pieces, C}, options);
    mps::Launch(
        kRnntSmoothedGrad, "rnnt_smoothed_am_only_parts",
        {static_cast<uint32_t>(pieces), kSmoothedThreads},
        mps::Join(of_scores, {mps::In(kSmoothedAm, in.am),
                              mps::In(kSmoothedAmMax, saved.am_max),
                              mps::In(kSmoothedUnigram, saved.unigram),
                              mps::In(kSmoothedAmLogSum, saved.am_log_sum),
                              mps::Out(kSmoothedParts, parts)}));
    unigram_grad = torch::empty({C}, options);
    mps::Launch(kRnntSmoothedGrad, "rnnt_smoothed_unigram_grad", mps::GridOf(C),
                {mps::In(kSmoothedSymbols, symbols),
                 mps::In(kSmoothedSums, sums), mps::In(kSmoothedParts, parts),
                 mps::Out(kSmoothedUnigramGrad, unigram_grad),
                 mps::In(kSmoothedParams, params)});
  }
  mps::Launch(
      kRnntSmoothedGrad, "rnnt_smoothed_finish",
      mps::GridOfSimdgroups(B * (T + S + 1), kSmoothedThreads),
      mps::Join(
          of_scores,
          {mps::In(kSmoothedAm, in.am), mps::In(kSmoothedLm, in.lm),
           mps::In(kSmoothedSymbols, symbols),
           mps::In(kSmoothedAmExp, saved.am_exp),
           mps::In(kSmoothedLmExp, saved.lm_exp),
           mps::In(kSmoothedAmMax, saved.am_max),
           mps::In(kSmoothedLmMax, saved.lm_max),
           mps::In(kSmoothedLmLogSum, saved.lm_log_sum),
           mps::In(kSmoothedNext, Bound(saved.next, saved.am_max)),
           mps::In(kSmoothedUnigram, saved.unigram),
           mps::In(kSmoothedAmLogSum, saved.am_log_sum),
           mps::In(kSmoothedUnigramGrad, unigram_grad),
           mps::In(kSmoothedSums, sums), mps::Out(kSmoothedAmGrad, am_grad),
           mps::Out(kSmoothedLmGrad, lm_grad)}));
  return {lm_grad, am_grad};
}

}  // namespace

std::tuple<torch::Tensor, torch::Tensor, RnntSmoothedSaved>
RnntSmoothedLogprobs(const RnntSmoothed &in) {
  NVTX_RANGE(K2_FUNC);
  NoAutocast no_autocast;
  RnntSmoothedSaved saved;
  const RnntSmoothedScores scores =
      GetRnntScores(in, GetLogprobsParams(in), &saved);
  return {scores.px, scores.py, saved};
}

std::pair<torch::Tensor, torch::Tensor> RnntSmoothedLogprobsBackward(
    const RnntSmoothed &in, const RnntSmoothedSaved &saved,
    torch::Tensor px_grad, torch::Tensor py_grad) {
  NVTX_RANGE(K2_FUNC);
  NoAutocast no_autocast;
  return GetRnntGrads(in, GetLogprobsParams(in), saved, px_grad, py_grad,
                      torch::nullopt);
}

std::pair<torch::Tensor, RnntSmoothedSaved> RnntSmoothedLoss(
    const RnntSmoothed &in, const std::string &reduction, bool need_grads) {
  NVTX_RANGE(K2_FUNC);
  NoAutocast no_autocast;
  RnntSmoothedParams params = GetLossParams(in, reduction);
  params.has_grads = need_grads;
  RnntSmoothedSaved saved;
  const RnntSmoothedScores scores = GetRnntScores(in, params, &saved);
  torch::Tensor p =
      torch::empty({params.B, params.S + 1, params.T + 1}, scores.py.options());
  const torch::Tensor totals =
      MutualInformationMps(scores.px, scores.py, in.boundary, p);
  if (need_grads)
    MutualInformationGradientsMps(in.boundary, p, *scores.ones, *saved.px_grad,
                                  *saved.py_grad);
  return {RnntReduce(totals, reduction), saved};
}

std::pair<torch::Tensor, torch::Tensor> RnntSmoothedLossBackward(
    const RnntSmoothed &in, const std::string &reduction,
    const RnntSmoothedSaved &saved, torch::Tensor loss_grad) {
  NVTX_RANGE(K2_FUNC);
  NoAutocast no_autocast;
  TORCH_CHECK(saved.px_grad.has_value() && saved.py_grad.has_value(),
              "The forward pass has not computed px_grad and py_grad");
  return GetRnntGrads(in, GetLossParams(in, reduction), saved, *saved.px_grad,
                      *saved.py_grad, loss_grad);
}

}  // namespace k2
