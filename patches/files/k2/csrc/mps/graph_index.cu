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
#include <numeric>
#include <vector>

#include "k2/csrc/mps/gpu_array.h"
#include "k2/csrc/mps/graph_index.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/graph_index.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/metal.h"

namespace k2 {

namespace {

constexpr const char *kGraphIndex = "graph_index";

GraphIndexParams GetParams(FsaVec &fsas) {
  return {fsas.Dim0(), fsas.TotSize(1), fsas.NumElements()};
}

int32_t SizeOf(const GraphIndexParams &params) {
  return params.num_states + 1 + 3 * params.num_arcs + 3 * params.num_fsas;
}

// Divides the SizeOf(params) elements of `memory` among the members of an
// index.
GraphIndex Divide(Array1<int32_t> memory, const GraphIndexParams &params) {
  const torch::Tensor all = ToTorch(memory);
  int64_t begin = 0;
  auto next = [&](int64_t size) {
    begin += size;
    return all.slice(0, begin - size, begin);
  };
  GraphIndex ans;
  ans.memory = memory;
  ans.incoming_begins = next(params.num_states + 1);
  ans.incoming = next(params.num_arcs);
  ans.by_label = next(params.num_arcs);
  ans.fsa_of_arc = next(params.num_arcs);
  ans.labels = next(2 * params.num_fsas).view({params.num_fsas, 2});
  ans.every_fsa = next(params.num_fsas);
  return ans;
}

}  // namespace

GraphIndex ReserveGraphIndex(FsaVec &fsas) {
  const GraphIndexParams params = GetParams(fsas);
  return Divide(Array1<int32_t>(fsas.Context(), SizeOf(params)), params);
}

std::pair<int32_t, int32_t> FillGraphIndex(FsaVec &fsas, GraphIndex &index) {
  NVTX_RANGE(K2_FUNC);
  const int32_t num_fsas = fsas.Dim0(), num_states = fsas.TotSize(1),
                num_arcs = fsas.NumElements();
  const int32_t *state_begins = fsas.RowSplits(1).Data(),
                *leaving_begins = fsas.RowSplits(2).Data();
  const Arc *arcs = fsas.values.Data();
  int32_t *incoming_begins = index.memory.Data(),
          *incoming = incoming_begins + num_states + 1,
          *by_label = incoming + num_arcs, *fsa_of_arc = by_label + num_arcs,
          *labels = fsa_of_arc + num_arcs, *every_fsa = labels + 2 * num_fsas;
  std::vector<int32_t> place;
  for (int32_t fsa = 0; fsa != num_fsas; ++fsa) {
    const int32_t begin = state_begins[fsa], end = state_begins[fsa + 1],
                  first = leaving_begins[begin], last = leaving_begins[end];
    // A counting sort: place[s] is where the next arc that enters s goes.
    place.assign(end - begin + 1, 0);
    for (int32_t i = first; i != last; ++i) ++place[arcs[i].dest_state + 1];
    place[0] = first;
    std::partial_sum(place.begin(), place.end(), place.begin());
    std::copy(place.begin(), place.end() - 1, incoming_begins + begin);
    for (int32_t i = first; i != last; ++i)
      incoming[place[arcs[i].dest_state]++] = i;

    std::iota(by_label + first, by_label + last, first);
    std::stable_sort(
        by_label + first, by_label + last,
        [arcs](int32_t i, int32_t k) { return arcs[i].label < arcs[k].label; });
    std::fill(fsa_of_arc + first, fsa_of_arc + last, fsa);
    const bool has_arcs = first != last;
    labels[2 * fsa] = has_arcs ? arcs[by_label[first]].label : -1;
    labels[2 * fsa + 1] = has_arcs ? arcs[by_label[last - 1]].label : -1;
    every_fsa[fsa] = fsa;
  }
  incoming_begins[num_states] = num_arcs;
  const auto range = std::minmax_element(labels, labels + 2 * num_fsas);
  return {*range.first, *range.second};
}

GraphIndex GraphIndexMps(FsaVec &fsas) {
  NVTX_RANGE(K2_FUNC);
  const GraphIndexParams params = GetParams(fsas);
  const int32_t size = SizeOf(params);
  GraphIndex ans =
      Divide(GpuArray<int32_t>(GpuTensor<int32_t>(size), size), params);
  Array1<int32_t> state_begins = fsas.RowSplits(1),
                  leaving_begins = fsas.RowSplits(2);
  // A thread compares two arcs at a time.
  const uint32_t threads = mps::FitThreads(
      kGraphIndex, kGraphIndex, ans.incoming,
      params.num_arcs / (2 * params.num_fsas) + 1, kSimdWidth);
  mps::Launch(
      kGraphIndex, kGraphIndex,
      {static_cast<uint32_t>(2 * params.num_fsas), threads},
      {mps::In(kGiArcs, ToTorch(fsas.values)),
       mps::In(kGiStateBegins, ToTorch(state_begins)),
       mps::In(kGiLeavingBegins, ToTorch(leaving_begins)),
       mps::Out(kGiIncomingBegins, ans.incoming_begins),
       mps::Out(kGiIncoming, ans.incoming), mps::Out(kGiByLabel, ans.by_label),
       mps::Out(kGiFsaOfArc, ans.fsa_of_arc), mps::Out(kGiLabels, ans.labels),
       mps::Out(kGiEveryFsa, ans.every_fsa), mps::In(kGiParams, params)});
  return ans;
}

}  // namespace k2
