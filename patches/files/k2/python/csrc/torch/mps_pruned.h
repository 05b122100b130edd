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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_PRUNED_H_
#define K2_PYTHON_CSRC_TORCH_MPS_PRUNED_H_

#include <string>
#include <utility>

#include "k2/csrc/mps/intersect_dense_pruned.h"
#include "k2/csrc/torch_util.h"
#include "k2/python/csrc/torch.h"

// Binds the functions that k2/python/k2/mps/pruned.py calls.
inline void PybindMpsPruned(py::module &m) {
#if K2_WITH_MPS
  // The bound functions touch no Python object, so they release the GIL.
  m.def(
      "mps_intersect_dense_pruned",
      [](k2::FsaVec &a_fsas, k2::DenseFsaVec &b_fsas, int32_t num_rows,
         float search_beam, float output_beam, int32_t min_active,
         int32_t max_active, bool allow_partial, int32_t groups) {
        std::string why_host;
        auto lattice = k2::IntersectDensePrunedMps(
            a_fsas, b_fsas, num_rows,
            {search_beam, output_beam, min_active, max_active, allow_partial},
            &why_host, groups);
        return std::make_pair(std::move(lattice), why_host);
      },
      py::arg("a_fsas"), py::arg("b_fsas"), py::arg("num_rows"),
      py::arg("search_beam"), py::arg("output_beam"),
      py::arg("min_active_states"), py::arg("max_active_states"),
      py::arg("allow_partial"), py::arg("groups") = 0,
      py::call_guard<py::gil_scoped_release>());
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_PRUNED_H_
