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
#include <utility>
#include <vector>

#include "k2/csrc/mps/rnnt_smoothed.h"
#include "k2/python/csrc/torch.h"

// Binds the functions that k2/python/k2/mps/rnnt_smoothed.py calls.
inline void PybindMpsRnntSmoothed(py::module &m) {
#if K2_WITH_MPS
  using k2::RnntSmoothed;
  using torch::Tensor;
  using Tensors = std::vector<Tensor>;
  // The bound functions touch no Python object, so they release the GIL.
  using NoGil = py::call_guard<py::gil_scoped_release>;
  py::class_<RnntSmoothed>(m, "MpsRnntSmoothed")
      .def(py::init([](Tensor lm, Tensor am, Tensor symbols,
                       const torch::optional<Tensor> &boundary,
                       int32_t termination_symbol, const std::string &rnnt_type,
                       double lm_only_scale, double am_only_scale,
                       double delay_penalty) {
             return RnntSmoothed{lm,
                                 am,
                                 symbols,
                                 boundary.value_or(Tensor()),
                                 termination_symbol,
                                 rnnt_type,
                                 lm_only_scale,
                                 am_only_scale,
                                 delay_penalty};
           }),
           py::kw_only(), py::arg("lm"), py::arg("am"), py::arg("symbols"),
           py::arg("boundary"), py::arg("termination_symbol"),
           py::arg("rnnt_type"), py::arg("lm_only_scale"),
           py::arg("am_only_scale"), py::arg("delay_penalty"));
  m.def(
      "mps_rnnt_smoothed_logprobs",
      [](const RnntSmoothed &in) {
        Tensors saved;
        Tensors ans = k2::RnntSmoothedLogprobs(in, &saved);
        return std::make_pair(ans, saved);
      },
      NoGil());
  m.def("mps_rnnt_smoothed_logprobs_grad", &k2::RnntSmoothedLogprobsGrad,
        NoGil());
  m.def(
      "mps_rnnt_smoothed_loss",
      [](const RnntSmoothed &in, const std::string &reduction,
         bool need_grads) {
        Tensors saved;
        Tensors ans = k2::RnntSmoothedLoss(in, reduction, need_grads, &saved);
        return std::make_pair(ans, saved);
      },
      NoGil());
  m.def("mps_rnnt_smoothed_loss_grad", &k2::RnntSmoothedLossGrad, NoGil());
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_RNNT_SMOOTHED_H_
