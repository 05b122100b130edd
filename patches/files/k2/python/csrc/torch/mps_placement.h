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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_PLACEMENT_H_
#define K2_PYTHON_CSRC_TORCH_MPS_PLACEMENT_H_

#include <string>
#include <vector>

#include "k2/csrc/mps/calibration.h"
#include "k2/python/csrc/torch.h"

// Binds the functions that k2/python/k2/mps/placement.py calls.
inline void PybindMpsPlacement(py::module &m) {
#if K2_WITH_MPS
  using k2::mps::Costs;
  using k2::mps::Placement;
  py::class_<Costs>(m, "MpsCosts")
      .def_readonly("host", &Costs::host)
      .def_readonly("step", &Costs::step)
      .def_readonly("call", &Costs::call);
  py::class_<Placement>(m, "MpsPlacement")
      .def_readonly("operation", &Placement::operation)
      .def_readonly("work", &Placement::work)
      .def_readonly("steps", &Placement::steps)
      .def_readonly("costs", &Placement::costs)
      .def_readonly("is_calibrated", &Placement::is_calibrated)
      .def_readonly("num_calls", &Placement::num_calls)
      .def_readonly("last_work", &Placement::last_work)
      .def_readonly("last_steps", &Placement::last_steps)
      .def_readonly("last_is_metal", &Placement::last_is_metal)
      .def_readonly("last_is_forced", &Placement::last_is_forced);
  m.def("mps_placements", &k2::mps::Placements);
  m.def("mps_set_costs",
        [](const std::string &operation, double host, double step,
           double call) { k2::mps::SetCosts(operation, {host, step, call}); });
#endif
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_PLACEMENT_H_
