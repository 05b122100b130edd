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
#include <numeric>

#include "k2/csrc/mps/dense_fsa_vec.h"
#include "k2/csrc/mps/gpu_array.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/dense_fsa_vec.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/torch_util.h"

namespace k2 {

namespace {

constexpr const char *kDenseFsaVec = "dense_fsa_vec";
constexpr uint32_t kMaxThreads = 256;

// Returns a grid with one threadgroup for each of `rows` rows of `size`
// elements.
mps::Grid GridOfRows(int64_t rows, int64_t size) {
  return {static_cast<uint32_t>(rows),
          static_cast<uint32_t>(std::min<int64_t>(
              kMaxThreads, (size + kSimdWidth - 1) / kSimdWidth * kSimdWidth))};
}

}  // namespace

DenseFsaVec DenseFsaVecForward(const at::Tensor &log_probs,
                               const std::vector<Segment> &segments,
                               at::Tensor *scores) {
  int64_t num_rows = 0;
  for (const Segment &segment : segments) num_rows += segment.num_frames + 1;
  DenseFsaVecParams params = {};
  params.num_symbols = log_probs.size(2);
  TORCH_CHECK(num_rows * (params.num_symbols + 1) <=
                  std::numeric_limits<int32_t>::max(),
              "k2 counts the scores of a DenseFsaVec in 32 bits; these are ",
              num_rows, " rows of ", params.num_symbols + 1);
  params.sequence_stride = log_probs.stride(0);
  params.frame_stride = log_probs.stride(1);
  params.symbol_stride = log_probs.stride(2);
  const int32_t num_segments = segments.size();
  *scores = torch::empty({num_rows, params.num_symbols + 1},
                         log_probs.options().requires_grad(false));
  torch::Tensor row_splits = GpuTensor<int32_t>(num_segments + 1);
  // Metal binds no empty buffer.  If log_probs is empty, the kernel does not
  // read `from`.
  const torch::Tensor &from = log_probs.numel() != 0 ? log_probs : *scores;
  int32_t row = 0;
  for (int32_t i = 0; i != num_segments;) {
    params.first_segment = i;
    params.num_segments = std::min<int32_t>(kDvMaxSegments, num_segments - i);
    params.first_rows[0] = row;
    for (int32_t k = 0; k != params.num_segments; ++k, ++i) {
      params.sequences[k] = segments[i].sequence;
      params.start_frames[k] = segments[i].start_frame;
      row += segments[i].num_frames + 1;
      params.first_rows[k + 1] = row;
    }
    mps::Launch(
        kDenseFsaVec, "dense_fsa_vec",
        GridOfRows(row - params.first_rows[0], params.num_symbols + 1),
        {mps::In(kDvLogProbs, from), mps::Out(kDvScores, *scores),
         mps::Out(kDvRowSplits, row_splits), mps::In(kDvParams, params)});
  }
  Array1<int32_t> splits = GpuArray<int32_t>(row_splits, num_segments + 1);
  return DenseFsaVec(RaggedShape2(&splits, nullptr, row),
                     FromTorch<float>(*scores, Array2Tag{}));
}

void DenseFsaVecBackward(const at::Tensor &scores_grad,
                         const std::vector<Segment> &segments,
                         const at::Tensor &grad) {
  if (grad.numel() == 0) return;
  std::vector<int32_t> order(segments.size()), first_rows;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t i, int32_t j) {
    return segments[i].sequence < segments[j].sequence;
  });
  int32_t row = 0;
  for (const Segment &segment : segments) {
    first_rows.push_back(row);
    row += segment.num_frames + 1;
  }
  DenseFsaVecGradParams params = {};
  params.num_frames = grad.size(1);
  params.num_symbols = grad.size(2);
  for (size_t i = 0; i != order.size();) {
    params.adds = i != 0;
    params.num_segments = std::min<size_t>(kDvMaxSegments, order.size() - i);
    for (int32_t k = 0; k != params.num_segments; ++k, ++i) {
      const Segment &segment = segments[order[i]];
      params.sequences[k] = segment.sequence;
      params.first_rows[k] = first_rows[order[i]];
      params.start_frames[k] = segment.start_frame;
      params.end_frames[k] = segment.start_frame + segment.num_frames;
    }
    mps::Launch(kDenseFsaVec, "dense_fsa_vec_grad",
                GridOfRows(grad.size(0) * grad.size(1), params.num_symbols),
                {mps::In(kDvScoresGrad, scores_grad), mps::Out(kDvGrad, grad),
                 mps::In(kDvParams, params)});
  }
}

}  // namespace k2
