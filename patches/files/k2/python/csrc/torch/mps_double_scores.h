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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_DOUBLE_SCORES_H_
#define K2_PYTHON_CSRC_TORCH_MPS_DOUBLE_SCORES_H_

#include "k2/csrc/mps/double_scores.h"
#include "k2/python/csrc/torch.h"
#include "k2/python/csrc/torch/v2/ragged_any.h"

// Binds the functions that k2/python/k2/mps/double_scores.py calls.
inline void PybindMpsDoubleScores(py::module &m) {
#if K2_WITH_MPS
  using k2::BatchedFsas;
  using k2::DoubleScores;
  // The bound functions touch no Python object, so they release the GIL.
  using NoGil = py::call_guard<py::gil_scoped_release>;

  py::class_<BatchedFsas>(m, "MpsBatchedFsas")
      .def(py::init([](const k2::FsaVec &fsas, k2::RaggedAny &state_batches,
                       bool log_semiring,
                       const torch::optional<torch::Tensor> &incoming_begins,
                       const torch::optional<torch::Tensor> &incoming) {
             return BatchedFsas{fsas, state_batches.any.Specialize<int32_t>(),
                                log_semiring,
                                incoming_begins.value_or(torch::Tensor()),
                                incoming.value_or(torch::Tensor())};
           }),
           py::kw_only(), py::arg("fsas"), py::arg("state_batches"),
           py::arg("log_semiring"), py::arg("incoming_begins"),
           py::arg("incoming"));
  py::class_<DoubleScores>(m, "MpsDoubleScores")
      .def_readonly("totals", &DoubleScores::totals)
      .def_readonly("best_arcs", &DoubleScores::best_arcs)
      .def("rounded", &k2::RoundDoubleScores, NoGil());
  m.def("mps_prefers_double_scores", &k2::PreferDoubleScoresMps);
  m.def("mps_double_scores", &k2::ComputeDoubleScores, NoGil(), py::arg("fsas"),
        py::kw_only(), py::arg("forward"), py::arg("backward"));
  m.def("mps_double_scores_backprop", &k2::DoubleScoresBackprop, NoGil(),
        py::arg("fsas"), py::kw_only(), py::arg("is_forward"),
        py::arg("scores"), py::arg("grad"), py::arg("of_totals"));
  m.def("mps_double_totals_backprop", &k2::DoubleTotalsBackprop, NoGil());
  m.def("mps_double_arc_post", &k2::DoubleArcPost, NoGil());
  m.def("mps_double_arc_post_backprop", &k2::DoubleArcPostBackprop, NoGil());
#endif
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_DOUBLE_SCORES_H_
