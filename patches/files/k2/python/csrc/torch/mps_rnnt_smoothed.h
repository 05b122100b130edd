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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_RNNT_SMOOTHED_H_
#define K2_PYTHON_CSRC_TORCH_MPS_RNNT_SMOOTHED_H_

#include <string>

#include "k2/csrc/mps/rnnt_smoothed.h"
#include "k2/python/csrc/torch.h"

// Binds the functions that k2/python/k2/mps/rnnt_smoothed.py calls.
inline void PybindMpsRnntSmoothed(py::module &m) {
#if K2_WITH_MPS
  using k2::RnntSmoothed;
  using Saved = k2::RnntSmoothedSaved;
  using torch::optional;
  using torch::Tensor;
  // The bound functions touch no Python object, so they release the GIL.
  using NoGil = py::call_guard<py::gil_scoped_release>;
  py::class_<RnntSmoothed>(m, "MpsRnntSmoothed")
      .def(py::init<Tensor, Tensor, Tensor, optional<Tensor>, int32_t,
                    std::string, double, double, double>(),
           py::kw_only(), py::arg("lm"), py::arg("am"), py::arg("symbols"),
           py::arg("boundary"), py::arg("termination_symbol"),
           py::arg("rnnt_type"), py::arg("lm_only_scale"),
           py::arg("am_only_scale"), py::arg("delay_penalty"));
  py::class_<Saved>(m, "MpsRnntSmoothedSaved")
      .def(py::init<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                    Tensor, Tensor, optional<Tensor>, optional<Tensor>>(),
           py::kw_only(), py::arg("am_max"), py::arg("lm_max"),
           py::arg("am_exp"), py::arg("lm_exp"), py::arg("lm_log_sum"),
           py::arg("next"), py::arg("unigram"), py::arg("am_log_sum"),
           py::arg("log_sums"), py::arg("px_grad"), py::arg("py_grad"))
      .def_readonly("am_max", &Saved::am_max)
      .def_readonly("lm_max", &Saved::lm_max)
      .def_readonly("am_exp", &Saved::am_exp)
      .def_readonly("lm_exp", &Saved::lm_exp)
      .def_readonly("lm_log_sum", &Saved::lm_log_sum)
      .def_readonly("next", &Saved::next)
      .def_readonly("unigram", &Saved::unigram)
      .def_readonly("am_log_sum", &Saved::am_log_sum)
      .def_readonly("log_sums", &Saved::log_sums)
      .def_readonly("px_grad", &Saved::px_grad)
      .def_readonly("py_grad", &Saved::py_grad);
  m.def("mps_rnnt_smoothed_logprobs", &k2::RnntSmoothedLogprobs, NoGil());
  m.def("mps_rnnt_smoothed_logprobs_backward",
        &k2::RnntSmoothedLogprobsBackward, NoGil());
  m.def("mps_rnnt_smoothed_loss", &k2::RnntSmoothedLoss, NoGil());
  m.def("mps_rnnt_smoothed_loss_backward", &k2::RnntSmoothedLossBackward,
        NoGil());
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_RNNT_SMOOTHED_H_
