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

#include "k2/csrc/mps/intersect_dense.h"

#include <algorithm>
#include <limits>

#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/intersect_dense.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/placement.h"
#include "k2/csrc/torch_util.h"

namespace k2 {

namespace {

constexpr const char *kSource = "intersect_dense";
constexpr const char *kKernel = "intersect_dense";

// Rough estimates in nanoseconds, for PreferMetal().  The host's is about half
// of what all of intersect_dense takes on one core of an x86-64; the kernel's
// are several times those of an NVIDIA H200.  No Apple device was measured.
constexpr double kHostTimePerArc = 10.0;       // and frame, both passes
constexpr double kMetalTimePerFrame = 4000.0;  // the longest sequence's
constexpr double kMetalTime = 200000.0;        // the dispatch and the wait

// Lanes for each state, so that most arcs are in registers.
int32_t GetWidth(int64_t num_arcs, int64_t num_states) {
  int32_t width = 1;
  while (width < kIdSimdWidth && num_states * kIdArcsOfLane * width < num_arcs)
    width *= 2;
  return width;
}

}  // namespace

bool IntersectDenseMps(FsaVec &a_fsas, Ragged<int32_t> &incoming_arcs,
                       DenseFsaVec &b_fsas, Array1<int32_t> a_to_b_map,
                       const std::vector<Array1<float> *> &state_scores) {
  ContextPtr &c = a_fsas.Context();
  if (c->GetDeviceType() != kMps) return false;
  const int32_t num_fsas = a_fsas.Dim0(), num_states = a_fsas.TotSize(1),
                num_arcs = a_fsas.NumElements();
  const double num_frames = state_scores.size() - 1;
  if (num_arcs == 0 ||
      !mps::PreferMetal(kHostTimePerArc * num_arcs * num_frames,
                        kMetalTimePerFrame * num_frames + kMetalTime))
    return false;

  Array1<int64_t> step_begins(GetCpuContext(), state_scores.size());
  int64_t total = 0;
  for (size_t t = 0; t != state_scores.size(); ++t) {
    step_begins.Data()[t] = total;
    total += state_scores[t]->Dim();
  }
  if (total > std::numeric_limits<int32_t>::max()) return false;
  step_begins = step_begins.To(c);

  // Before the new one is allocated, the old ones are freed.
  std::vector<int32_t> sizes;
  for (Array1<float> *scores : state_scores) {
    sizes.push_back(scores->Dim());
    *scores = Array1<float>();
  }
  Array1<float> all(c, static_cast<int32_t>(total));
  int32_t begin = 0;
  for (size_t t = 0; t != state_scores.size(); ++t) {
    *state_scores[t] = all.Range(begin, sizes[t]);
    begin += sizes[t];
  }

  Array1<int32_t> state_begins = a_fsas.RowSplits(1),
                  leaving_begins = a_fsas.RowSplits(2),
                  entering_begins = incoming_arcs.RowSplits(2),
                  b_begins = b_fsas.shape.RowSplits(1);
  const int32_t *state_begins_data = state_begins.Data();
  int32_t max_states = 0;
  for (int32_t i = 0; i != num_fsas; ++i)
    max_states =
        std::max(max_states, state_begins_data[i + 1] - state_begins_data[i]);

  const int32_t width = GetWidth(num_arcs, num_states),
                stride = b_fsas.scores.ElemStride0(),
                num_columns = b_fsas.scores.Dim1(),
                num_scores = (b_fsas.scores.Dim0() - 1) * stride + num_columns;
  torch::Tensor arcs = ToTorch(a_fsas.values);
  const uint32_t threads = mps::FitThreads(
      kSource, kKernel, arcs, int64_t{max_states} * width, kIdSimdWidth);
  mps::Launch(kSource, kKernel, {static_cast<uint32_t>(2 * num_fsas), threads},
              {arcs, ToTorch(state_begins), ToTorch(leaving_begins),
               ToTorch(entering_begins), ToTorch(incoming_arcs.values),
               ToTorch(b_fsas.scores), ToTorch(b_begins), ToTorch(a_to_b_map),
               ToTorch(step_begins), ToTorch(all),
               IntersectDenseParams{stride, num_columns, num_scores, width}});
  return true;
}

}  // namespace k2
