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

#include "k2/csrc/fsa.h"
#include "k2/csrc/mps/gpu_array.h"
#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/fsa_properties.h"
#include "k2/csrc/mps/kernels/lattice.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/lattice.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/torch_util.h"

namespace k2 {

namespace {

// The kernels set the bits that k2 reads.
static_assert(int{kLatticeNonempty} == int{kFsaPropertiesNonempty}, "");
static_assert(int{kLatticeArcSorted} == int{kFsaPropertiesArcSorted}, "");
static_assert(int{kLatticeArcSortedAndDeterministic} ==
                  int{kFsaPropertiesArcSortedAndDeterministic},
              "");
static_assert(int{kLatticeEpsilonFree} == int{kFsaPropertiesEpsilonFree}, "");
static_assert(int{kLatticeMaybeAccessible} ==
                  int{kFsaPropertiesMaybeAccessible},
              "");
static_assert(int{kLatticeMaybeCoaccessible} ==
                  int{kFsaPropertiesMaybeCoaccessible},
              "");

constexpr const char *kBatches = "lattice_batches";
constexpr const char *kGrad = "lattice_grad";

BatchesParams GetBatchesParams(const FramedLattice &lattice) {
  FsaVec fsas = lattice.fsas;
  return {fsas.Dim0(), lattice.num_steps, fsas.TotSize(1), fsas.NumElements()};
}

LatticeGradParams GetGradParams(const FramedLattice &lattice) {
  LatticeGradParams params = {};
  params.num_fsas = lattice.a_to_b_map.Dim();
  params.num_steps = lattice.num_steps;
  params.num_sequences = lattice.row_begins.Dim() - 1;
  return params;
}

torch::Tensor TensorOf(Array1<int32_t> array) { return ToTorch(array); }

mps::Grid GridOfFrames(const BatchesParams &params) {
  return mps::GridOfSimdgroups(params.num_fsas * params.num_steps);
}

}  // namespace

Ragged<int32_t> FramedLattice::IncomingArcs() const {
  FsaVec lattice = fsas;
  const BatchesParams params = GetBatchesParams(*this);
  torch::Tensor splits = GpuTensor<int32_t>(params.num_states + 1),
                incoming = GpuTensor<int32_t>(params.num_arcs);
  // Metal binds no empty buffer.  If the lattice has no arcs, `incoming` takes
  // the place of the arcs.
  mps::Launch(
      kBatches, "incoming_arcs", GridOfFrames(params),
      {mps::In(kBatchesArcs,
               params.num_arcs ? ToTorch(lattice.values) : incoming),
       mps::In(kBatchesFrameStates, TensorOf(frame_states)),
       mps::In(kBatchesFrameArcs, TensorOf(frame_arcs)),
       mps::Out(kBatchesNext, GpuTensor<int32_t>(params.num_states)),
       mps::Out(kBatchesRowSplits, splits),
       mps::Out(kBatchesIncoming, incoming), mps::In(kBatchesParams, params)});
  Array1<int32_t> splits1 = lattice.RowSplits(1),
                  splits2 = GpuArray<int32_t>(splits, params.num_states + 1);
  return Ragged<int32_t>(RaggedShape3(&splits1, nullptr, params.num_states,
                                      &splits2, nullptr, params.num_arcs),
                         GpuArray<int32_t>(incoming, params.num_arcs));
}

Ragged<int32_t> FramedLattice::StateBatches() const {
  const BatchesParams params = GetBatchesParams(*this);
  const int32_t num_parts = params.num_steps * params.num_fsas;
  torch::Tensor splits1 = GpuTensor<int32_t>(params.num_steps + 1),
                splits2 = GpuTensor<int32_t>(num_parts + 1),
                states = GpuTensor<int32_t>(params.num_states);
  const char *place = "place_batches";
  mps::Launch(
      kBatches, place,
      {1, mps::FitThreads(kBatches, place, splits1, num_parts, kSimdWidth)},
      {mps::In(kBatchesFrameStates, TensorOf(frame_states)),
       mps::Out(kBatchesRowSplits1, splits1),
       mps::Out(kBatchesRowSplits2, splits2), mps::In(kBatchesParams, params)});
  mps::Launch(
      kBatches, "fill_batches", GridOfFrames(params),
      {mps::In(kBatchesFrameStates, TensorOf(frame_states)),
       mps::In(kBatchesRowSplits2, splits2), mps::Out(kBatchesStates, states),
       mps::In(kBatchesParams, params)});
  Array1<int32_t> axis1 = GpuArray<int32_t>(splits1, params.num_steps + 1),
                  axis2 = GpuArray<int32_t>(splits2, num_parts + 1);
  return Ragged<int32_t>(RaggedShape3(&axis1, nullptr, num_parts, &axis2,
                                      nullptr, params.num_states),
                         GpuArray<int32_t>(states, params.num_states));
}

void Lattice::GraphGrad(const at::Tensor &arc_grad,
                        const at::Tensor &grad) const {
  LatticeGradParams params = GetGradParams(*this);
  params.num_graph_arcs = grad.numel();
  if (arc_grad.numel() == 0) {
    grad.zero_();
    return;
  }
  mps::Launch(
      kGrad, "graph_grad", mps::GridOf(params.num_graph_arcs),
      {mps::In(kLatticeGradArcGrad, arc_grad),
       mps::In(kLatticeGradArcMapA, TensorOf(arc_map_a)),
       mps::In(kLatticeGradFrameArcs, TensorOf(frame_arcs)),
       mps::In(kLatticeGradStateBegins, TensorOf(state_begins)),
       mps::In(kLatticeGradLeavingBegins, TensorOf(leaving_begins)),
       mps::Out(kLatticeGradGrad, grad), mps::In(kLatticeGradParams, params)});
}

void FramedLattice::DenseGrad(const at::Tensor &arc_grad,
                              const at::Tensor &grad) const {
  TORCH_CHECK(grad.sizes() == at::IntArrayRef({num_rows, num_columns}),
              "The scores of the DenseFsaVec have shape ", grad.sizes(),
              " now, but had shape [", num_rows, ", ", num_columns,
              "] when the DenseFsaVec was made; do not assign other scores");
  LatticeGradParams params = GetGradParams(*this);
  params.num_rows = num_rows;
  params.num_columns = num_columns;
  if (arc_grad.numel() == 0) {
    grad.zero_();
    return;
  }
  mps::Launch(
      kGrad, "dense_grad", mps::GridOfSimdgroups(params.num_rows),
      {mps::In(kLatticeGradArcGrad, arc_grad),
       mps::In(kLatticeGradArcMapB, TensorOf(arc_map_b)),
       mps::In(kLatticeGradFrameArcs, TensorOf(frame_arcs)),
       mps::In(kLatticeGradRowBegins, TensorOf(row_begins)),
       mps::In(kLatticeGradAToBMap, TensorOf(a_to_b_map)),
       mps::Out(kLatticeGradGrad, grad), mps::In(kLatticeGradParams, params)});
}

}  // namespace k2
