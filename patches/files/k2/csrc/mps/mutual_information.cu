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
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "k2/csrc/macros.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/mutual_information.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/mutual_information.h"
#include "k2/csrc/nvtx.h"

namespace k2 {

namespace {

constexpr const char *kMutualInformation = "mutual_information";

using Params = MutualInformationParams;

// Checks types and shapes, and returns the parameters that follow from them.
// The parameters of a dispatch are 0.
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
  // The kernels also compute indexes of cells after the last cell, and clamp
  // these indexes afterwards.
  TORCH_CHECK((S + 2 * kMiMaxStrips * kMiRows) * (T + 1) + T + 2 * kMiColumns <=
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

// Metal binds no empty buffer.  Input() replaces an empty input by a row, which
// the kernel loads and does not use.  Output() replaces an empty output by `p`,
// which the kernel does not touch in its place.
torch::Tensor Input(const torch::Tensor &tensor, const torch::Tensor &p) {
  return tensor.numel() != 0 ? tensor : torch::empty({p.size(2)}, p.options());
}

const torch::Tensor &Output(const torch::Tensor &tensor,
                            const torch::Tensor &p) {
  return tensor.numel() != 0 ? tensor : p;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Sets params->length and params->delay, in rounds, so that an estimate of the
   time of all dispatches is lowest.

   A dispatch takes the time of its rounds plus kMiRoundsToStart.  If there are
   more threadgroups than cores, it takes that time once for each wave of
   threadgroups.  A dispatch does either all rounds of one band, or some rounds
   of several bands.

   @param [in] bands   Bands of a sequence.
   @param [in] rounds  The most rounds of a band.
   @param [in] behind  The fewest rounds that a band must be behind the finished
                       rounds of the band above it.
   @param [in] cores   Cores of the GPU.
   @return     The number of dispatches.
 */
int64_t DivideRounds(int64_t bands, int64_t rounds, int64_t behind,
                     int64_t cores, Params *params) {
  params->length = params->delay = static_cast<int>(rounds);
  if (bands == 1) return 1;

  // With this length the estimate is lowest on a GPU with enough cores.
  const int64_t length = static_cast<int64_t>(
                    std::sqrt(kMiRoundsToStart *
                              (rounds + (bands - 1) * behind) / (bands - 1))),
                delay = length + behind;
  if (delay >= rounds) return bands;
  const int64_t B = params->num_sequences,
                dispatches = CeilDiv(rounds + (bands - 1) * delay, length),
                at_once = std::min(bands, CeilDiv(rounds, delay)),
                time = dispatches * (length + kMiRoundsToStart) *
                       CeilDiv(B * at_once, cores),
                time_of_whole =
                    bands * (rounds + kMiRoundsToStart) * CeilDiv(B, cores);
  if (time >= time_of_whole) return bands;
  params->length = static_cast<int>(length);
  params->delay = static_cast<int>(delay);
  return dispatches;
}

/* Encodes a kernel for all sequences: one dispatch if a threadgroup has threads
   for all strips of a sequence, else several.

   @param [in] kernel     The kernel's name for torch.float32 and one band.
   @param [in] type       The type of px and py.
   @param [in] p          As for MutualInformationMps().
   @param [in] arguments  All arguments but the last two, scratch and params.
   @param [in] params     What GetParams() returned.
 */
void LaunchAll(const std::string &kernel, torch::ScalarType type,
               const torch::Tensor &p, std::vector<mps::Argument> arguments,
               Params params) {
  std::string name = kernel + (type == torch::kHalf       ? "_half"
                               : type == torch::kBFloat16 ? "_bfloat"
                                                          : "");
  auto most_of = [&] {
    return std::min<int64_t>(
        kMiMaxStrips,
        mps::MaxUnits(kMutualInformation, name, p, kMiThreadsPerStrip));
  };
  const int64_t B = p.size(0), all_strips = params.S / kMiRows + 1;
  int64_t most = most_of();
  if (most < all_strips) {
    name += "_bands";
    most = most_of();
  }
  params.num_sequences = static_cast<int>(B);
  const MutualInformationDispatches dispatches =
      GetMutualInformationDispatches(params, most, mps::NumCores());
  arguments.push_back(
      torch::empty({B, dispatches.params[0].scratch_stride}, p.options()));
  for (const Params &dispatch : dispatches.params) {
    std::vector<mps::Argument> all = arguments;
    all.push_back(dispatch);
    mps::Launch(kMutualInformation, name,
                {static_cast<uint32_t>(dispatches.threadgroups),
                 static_cast<uint32_t>(dispatches.threads)},
                all);
  }
}

}  // namespace

MutualInformationDispatches GetMutualInformationDispatches(
    MutualInformationParams params, int64_t max_strips, int64_t cores) {
  const int64_t all_strips = params.S / kMiRows + 1,
                bands = CeilDiv(all_strips, max_strips),
                strips = CeilDiv(all_strips, bands),
                behind = strips * kMiMaxLag;
  params.scratch_stride = 4 * (params.S + 1);
  if (bands > 1) {
    params.scratch_columns = params.T + kMiColumns;
    params.scratch_stride += 2 * params.scratch_columns +
                             static_cast<int>(bands * strips) * kMiSavedSize;
  }
  // The chunks of a strip: its last lane is kMiRows - 1 columns behind the
  // first lane, and the padding has at most kMiColumns - 1 columns.
  const int64_t chunks =
      (params.T + kMiColumns - 1 + kMiRows - 1) / kMiColumns + 1;
  const int64_t count = DivideRounds(bands, chunks + (strips - 1) * kMiMaxLag,
                                     behind, cores, &params);
  MutualInformationDispatches ans = {params.num_sequences * bands,
                                     strips * kMiThreadsPerStrip,
                                     std::vector<Params>(count, params)};
  for (int64_t i = 0; i != count; ++i)
    ans.params[i].begin = static_cast<int>(i * params.length);
  return ans;
}

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
  LaunchAll("mutual_information_forward", px.scalar_type(), p,
            {Input(px, p), Input(py, p), bound, p, ans}, params);
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
  LaunchAll("mutual_information_backward", px.scalar_type(), p,
            {bound, p, ans_grad, Output(px_grad, p), Output(py_grad, p)},
            params);
  return {px_grad, py_grad};
}

}  // namespace k2
