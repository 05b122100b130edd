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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_GRAPH_INDEX_H_
#define K2_PYTHON_CSRC_TORCH_MPS_GRAPH_INDEX_H_

#include "k2/csrc/mps/graph_index.h"
#include "k2/csrc/mps/metal.h"
#include "k2/python/csrc/torch.h"

// Binds the functions that k2/python/k2/mps/graph_index.py calls.
inline void PybindMpsGraphIndex(py::module &m) {
#if K2_WITH_MPS
  using k2::GraphIndex;
  // The bound functions touch no Python object, so they release the GIL.
  using NoGil = py::call_guard<py::gil_scoped_release>;
  py::class_<GraphIndex> index(m, "MpsGraphIndex");
  index.def_readonly("incoming_begins", &GraphIndex::incoming_begins);
  index.def_readonly("incoming", &GraphIndex::incoming);
  index.def_readonly("by_label", &GraphIndex::by_label);
  index.def_readonly("fsa_of_arc", &GraphIndex::fsa_of_arc);
  index.def_readonly("labels", &GraphIndex::labels);
  index.def_readonly("every_fsa", &GraphIndex::every_fsa);
  index.def(
      "fill",
      [](GraphIndex &self, k2::FsaVec &fsas) {
        return k2::FillGraphIndex(fsas, self);
      },
      NoGil());
  m.def("mps_reserve_graph_index", &k2::ReserveGraphIndex, NoGil());
  m.def("mps_graph_index", &k2::GraphIndexMps, NoGil());
  m.def("mps_num_failures", &k2::mps::NumFailures);
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_GRAPH_INDEX_H_
