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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_H_
#define K2_PYTHON_CSRC_TORCH_MPS_H_

#include "k2/python/csrc/torch.h"
#include "k2/python/csrc/torch/mps_metal.h"

// Binds a function for the modules in k2/python/k2/mps.
inline void PybindMps(py::module &m) {
  PybindMpsMetal(m);
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_H_
