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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_RNNT_PRUNED_H_
#define K2_PYTHON_CSRC_TORCH_MPS_RNNT_PRUNED_H_

#include <string>

#include "k2/csrc/mps/rnnt_pruned.h"
#include "k2/python/csrc/torch.h"

// Binds the functions that k2/python/k2/mps/rnnt_pruned.py calls.
inline void PybindMpsRnntPruned(py::module &m) {
#if K2_WITH_MPS
  using k2::RnntPruned;
  using k2::RnntPrunedSaved;
  using torch::optional;
  using torch::Tensor;
  // The bound functions touch no Python object, so they release the GIL.
  using NoGil = py::call_guard<py::gil_scoped_release>;
  py::class_<RnntPruned>(m, "MpsRnntPruned")
      .def(py::init([](Tensor logits, Tensor symbols, optional<Tensor> ranges,
                       optional<Tensor> boundary, int64_t blank,
                       std::string rnnt_type, double delay_penalty,
                       std::string reduction, bool hat) {
             return RnntPruned{logits,        symbols,   ranges,
                               boundary,      blank,     rnnt_type,
                               delay_penalty, reduction, hat};
           }),
           py::kw_only(), py::arg("logits"), py::arg("symbols"),
           py::arg("ranges"), py::arg("boundary"), py::arg("blank"),
           py::arg("rnnt_type"), py::arg("delay_penalty"), py::arg("reduction"),
           py::arg("hat"));
  py::class_<RnntPrunedSaved>(m, "MpsRnntPrunedSaved")
      .def(py::init([](Tensor lse, Tensor row_grads) {
             return RnntPrunedSaved{lse, row_grads};
           }),
           py::kw_only(), py::arg("lse"), py::arg("row_grads"))
      .def_readonly("lse", &RnntPrunedSaved::lse)
      .def_readonly("row_grads", &RnntPrunedSaved::row_grads);
  m.def("mps_rnnt_pruned_forward", &k2::RnntPrunedForward, NoGil());
  m.def("mps_rnnt_pruned_backward", &k2::RnntPrunedBackward, NoGil());
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_RNNT_PRUNED_H_
