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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_METAL_H_
#define K2_PYTHON_CSRC_TORCH_MPS_METAL_H_

#include "k2/csrc/mps/metal.h"
#include "k2/python/csrc/torch.h"

// Binds what tests compare with the arguments that the kernels declare.
inline void PybindMpsMetal(py::module &m) {
#if K2_WITH_MPS
  using k2::mps::PassedArguments;
  py::class_<PassedArguments>(m, "MpsPassedArguments")
      .def_readonly("source", &PassedArguments::source)
      .def_readonly("kernel", &PassedArguments::kernel)
      .def_readonly("in_", &PassedArguments::in)
      .def_readonly("out", &PassedArguments::out);
  m.def("mps_passed_arguments", &k2::mps::GetPassedArguments);
#endif
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_METAL_H_
