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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_CTC_H_
#define K2_PYTHON_CSRC_TORCH_MPS_CTC_H_

#include "k2/csrc/mps/ctc.h"
#include "k2/python/csrc/torch.h"

#if K2_WITH_MPS

inline k2::CtcGraphs ToCtcGraphs(
    const k2::FsaVec &fsas, const k2::GraphIndex &index,
    const torch::optional<torch::Tensor> &penalized) {
  return {fsas, index, penalized.value_or(torch::Tensor())};
}

#endif  // K2_WITH_MPS

// See k2/python/k2/mps/ctc.py for what Python makes of it.
inline void PybindMpsCtc(py::module &m) {
#if K2_WITH_MPS
  using k2::CtcSaved;
  using torch::Tensor;
  // No Python object is touched while the GIL is released.
  using NoGil = py::call_guard<py::gil_scoped_release>;
  py::class_<CtcSaved>(m, "MpsCtcSaved")
      .def(py::init([](Tensor kept, Tensor sums, Tensor totals) {
             return CtcSaved{kept, sums, totals};
           }),
           py::kw_only(), py::arg("kept"), py::arg("sums"), py::arg("totals"))
      .def_readonly("kept", &CtcSaved::kept)
      .def_readonly("sums", &CtcSaved::sums)
      .def_readonly("totals", &CtcSaved::totals);
  m.def("mps_prefers_ctc", &k2::PreferCtcMps);
  m.def(
      "mps_ctc_forward",
      [](const k2::FsaVec &fsas, const k2::GraphIndex &index,
         const torch::optional<Tensor> &penalized, k2::DenseFsaVec &dense,
         int32_t num_rows, float penalty, bool use_double, bool all_sums,
         float output_beam) {
        k2::CtcGraphs graphs = ToCtcGraphs(fsas, index, penalized);
        return k2::CtcForward(graphs, dense, num_rows, penalty, use_double,
                              all_sums, output_beam);
      },
      NoGil(), py::kw_only(), py::arg("fsas"), py::arg("index"),
      py::arg("penalized"), py::arg("dense"), py::arg("num_rows"),
      py::arg("penalty"), py::arg("use_double"), py::arg("all_sums"),
      py::arg("output_beam"));
  m.def(
      "mps_ctc_backward",
      [](const k2::FsaVec &fsas, const k2::GraphIndex &index,
         const torch::optional<Tensor> &penalized, k2::DenseFsaVec &dense,
         int32_t num_rows, float penalty, bool use_double, bool all_sums,
         const CtcSaved &saved, Tensor score_grads, bool need_graphs,
         bool need_dense) {
        k2::CtcGraphs graphs = ToCtcGraphs(fsas, index, penalized);
        return k2::CtcBackward(graphs, dense, num_rows, penalty, use_double,
                               all_sums, saved, score_grads, need_graphs,
                               need_dense);
      },
      NoGil(), py::kw_only(), py::arg("fsas"), py::arg("index"),
      py::arg("penalized"), py::arg("dense"), py::arg("num_rows"),
      py::arg("penalty"), py::arg("use_double"), py::arg("all_sums"),
      py::arg("saved"), py::arg("score_grads"), py::arg("need_graphs"),
      py::arg("need_dense"));
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_CTC_H_
