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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_RNNT_PRUNING_H_
#define K2_PYTHON_CSRC_TORCH_MPS_RNNT_PRUNING_H_

#include "k2/csrc/mps/rnnt_pruning.h"
#include "k2/python/csrc/torch.h"

// Binds the functions that k2/python/k2/mps/rnnt_pruning.py calls.
inline void PybindMpsRnntPruning(py::module &m) {
#if K2_WITH_MPS
  // The bound functions touch no Python object, so they release the GIL.
  using NoGil = py::call_guard<py::gil_scoped_release>;
  m.def("mps_rnnt_prune_ranges", &k2::RnntPruneRanges, NoGil());
  m.def("mps_rnnt_prune", &k2::RnntPrune, NoGil(), py::kw_only(), py::arg("am"),
        py::arg("lm"), py::arg("ranges"));
  m.def("mps_rnnt_prune_backward", &k2::RnntPruneBackward, NoGil(),
        py::kw_only(), py::arg("out_grad"), py::arg("out"), py::arg("ranges"),
        py::arg("num_symbols"), py::arg("needs_am"), py::arg("needs_lm"));
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_RNNT_PRUNING_H_
