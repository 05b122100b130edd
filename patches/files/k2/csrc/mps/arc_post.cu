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

#include "k2/csrc/mps/arc_post.h"

#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/arc_post.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/placement.h"
#include "k2/csrc/torch_util.h"

namespace k2 {

namespace {

constexpr const char *kSource = "arc_post";

// Rough estimates in nanoseconds, for PreferMetal().  The host's are 0.7 to 0.9
// of what it takes for CTC lattices of 26,000 to 230,000 arcs on one core of an
// x86-64.  No Apple device was measured.
constexpr double kHostTimePerArcScores = 2.0;
constexpr double kHostTimePerArcTotBackprop = 2.0;
constexpr double kHostTimePerArc = 1.0;
constexpr double kHostTimePerArcBackprop = 5.0;
constexpr double kMetalTime = 200000.0;  // the dispatch and the wait

bool UseMetal(FsaVec &fsas, double host_time_per_arc) {
  const int32_t num_arcs = fsas.NumElements();
  return fsas.Context()->GetDeviceType() == kMps && num_arcs != 0 &&
         mps::PreferMetal(host_time_per_arc * num_arcs, kMetalTime);
}

// Memory for the GPU to write.  That of the context is the host's to write, so
// it waits until the GPU is done with what was there before.
Array1<float> NewArray(FsaVec &fsas, int32_t dim) {
  return FromTorch<float>(torch::empty(
      {dim}, ToTorch(fsas.values).options().dtype(torch::kFloat)));
}

ArcPostParams GetParams(FsaVec &fsas) {
  return {fsas.Dim0(), fsas.TotSize(1), fsas.NumElements(), 1};
}

}  // namespace

bool TotScoresMps(FsaVec &fsas, Array1<float> forward_scores,
                  Array1<float> *tot_scores) {
  // The host would take no time, but where forward scores are the GPU's it
  // would wait for them.  That is where there are so many arcs.
  if (!UseMetal(fsas, kHostTimePerArcScores)) return false;
  const ArcPostParams params = GetParams(fsas);
  Array1<int32_t> state_begins = fsas.RowSplits(1);
  *tot_scores = NewArray(fsas, params.num_fsas);
  mps::Launch(kSource, "tot_scores", mps::GridOf(params.num_fsas),
              {ToTorch(state_begins), ToTorch(forward_scores),
               ToTorch(*tot_scores), params});
  return true;
}

bool TotScoresLogBackpropMps(FsaVec &fsas, const at::Tensor &arc_post,
                             const at::Tensor &tot_grad,
                             const at::Tensor &arc_grad) {
  if (!UseMetal(fsas, kHostTimePerArcTotBackprop)) return false;
  ArcPostParams params = GetParams(fsas);
  params.grad_stride = static_cast<int>(tot_grad.stride(0));
  Array1<int32_t> src_states = fsas.RowIds(2), fsa_ids = fsas.RowIds(1);
  mps::Launch(kSource, "tot_scores_backprop", mps::GridOf(params.num_arcs),
              {arc_post, ToTorch(src_states), ToTorch(fsa_ids), tot_grad,
               arc_grad, params});
  return true;
}

bool ArcPostMps(FsaVec &fsas, Array1<float> forward_scores,
                Array1<float> backward_scores, Array1<float> *arc_post) {
  if (!UseMetal(fsas, kHostTimePerArc)) return false;
  const ArcPostParams params = GetParams(fsas);
  Array1<int32_t> src_states = fsas.RowIds(2), fsa_ids = fsas.RowIds(1),
                  state_begins = fsas.RowSplits(1);
  *arc_post = NewArray(fsas, params.num_arcs);
  mps::Launch(kSource, "arc_post", mps::GridOf(params.num_arcs),
              {ToTorch(fsas.values), ToTorch(src_states), ToTorch(fsa_ids),
               ToTorch(state_begins), ToTorch(forward_scores),
               ToTorch(backward_scores), ToTorch(*arc_post), params});
  return true;
}

bool ArcPostBackpropMps(FsaVec &fsas, Ragged<int32_t> &incoming_arcs,
                        Array1<float> arc_post_grad,
                        Array1<float> &forward_grad,
                        Array1<float> &backward_grad) {
  if (!UseMetal(fsas, kHostTimePerArcBackprop)) return false;
  const char *kernel = "arc_post_backprop";
  const ArcPostParams params = GetParams(fsas);
  Array1<int32_t> fsa_ids = fsas.RowIds(1), state_begins = fsas.RowSplits(1),
                  leaving_begins = fsas.RowSplits(2),
                  entering_begins = incoming_arcs.RowSplits(2);
  torch::Tensor grad = ToTorch(arc_post_grad);
  // So that one pass is enough for the arcs of an average FSA.
  const uint32_t threads = mps::FitThreads(
      kSource, kernel, grad,
      (params.num_arcs + params.num_fsas - 1) / params.num_fsas, kApSimdWidth);
  mps::Launch(
      kSource, kernel,
      {params.num_fsas + (params.num_states + threads - 1) / threads, threads},
      {grad, ToTorch(fsa_ids), ToTorch(state_begins), ToTorch(leaving_begins),
       ToTorch(entering_begins), ToTorch(incoming_arcs.values),
       ToTorch(forward_grad), ToTorch(backward_grad), params});
  return true;
}

}  // namespace k2
