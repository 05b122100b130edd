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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_LATTICE_H_
#define K2_PYTHON_CSRC_TORCH_MPS_LATTICE_H_

#include "k2/csrc/mps/intersect_dense.h"
#include "k2/csrc/torch_util.h"
#include "k2/python/csrc/torch.h"
#include "k2/python/csrc/torch/v2/ragged_any.h"

// Binds the functions that k2/python/k2/mps/lattice.py calls.
inline void PybindMpsLattice(py::module &m) {
#if K2_WITH_MPS
  using k2::FramedLattice;
  using k2::Lattice;
  using k2::RaggedAny;
  // The bound functions touch no Python object, so they release the GIL.
  using NoGil = py::call_guard<py::gil_scoped_release>;
  py::class_<FramedLattice> framed(m, "MpsFramedLattice");
  framed.def_readonly("fsas", &FramedLattice::fsas);
  framed.def_readonly("properties", &FramedLattice::properties);
  framed.def_property_readonly("arc_map_a", [](FramedLattice &self) {
    return k2::ToTorch(self.arc_map_a);
  });
  framed.def_property_readonly("arc_map_b", [](FramedLattice &self) {
    return k2::ToTorch(self.arc_map_b);
  });
  framed.def(
      "incoming_arcs",
      [](const FramedLattice &self) {
        return RaggedAny(self.IncomingArcs().Generic());
      },
      NoGil());
  framed.def(
      "state_batches",
      [](const FramedLattice &self) {
        return RaggedAny(self.StateBatches().Generic());
      },
      NoGil());
  framed.def("dense_grad", &FramedLattice::DenseGrad, NoGil());
  py::class_<Lattice, FramedLattice> lattice(m, "MpsLattice");
  lattice.def("graph_grad", &Lattice::GraphGrad, NoGil());

  m.def("mps_prefers_intersect_dense", &k2::PreferIntersectDenseMps);
  m.def("mps_intersect_dense", &k2::IntersectDenseMps, NoGil());
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_LATTICE_H_
