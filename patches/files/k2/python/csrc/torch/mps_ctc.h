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

// Binds the functions that k2/python/k2/mps/ctc.py calls.
inline void PybindMpsCtc(py::module &m) {
#if K2_WITH_MPS
  using k2::CtcCall;
  using k2::CtcSaved;
  using torch::Tensor;
  // The bound functions touch no Python object, so they release the GIL.
  using NoGil = py::call_guard<py::gil_scoped_release>;
  m.def("mps_prefers_ctc", &k2::PreferCtcMps);
  py::class_<CtcSaved>(m, "MpsCtcSaved")
      .def(py::init([](Tensor kept, Tensor sums, Tensor totals) {
             return CtcSaved{kept, sums, totals};
           }),
           py::kw_only(), py::arg("kept"), py::arg("sums"), py::arg("totals"))
      .def_readonly("kept", &CtcSaved::kept)
      .def_readonly("sums", &CtcSaved::sums)
      .def_readonly("totals", &CtcSaved::totals);
  py::class_<CtcCall>(m, "MpsCtcCall")
      .def(py::init<k2::FsaVec, k2::GraphIndex, k2::DenseFsaVec, int32_t,
                    torch::optional<Tensor>, float, bool, bool, float>(),
           py::kw_only(), py::arg("graphs"), py::arg("index"), py::arg("dense"),
           py::arg("num_rows"), py::arg("penalized"), py::arg("penalty"),
           py::arg("use_double"), py::arg("all_sums"), py::arg("output_beam"))
      .def("forward", &k2::CtcForward, NoGil())
      .def("backward", &k2::CtcBackward, NoGil(), py::kw_only(),
           py::arg("saved"), py::arg("score_grads"), py::arg("need_graphs"),
           py::arg("need_dense"));
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_CTC_H_
