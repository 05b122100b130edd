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

#include <vector>

#include "k2/csrc/array.h"
#include "k2/csrc/mps/mps_context.h"
#include "k2/python/csrc/torch.h"
#include "k2/python/csrc/torch/scores.h"

namespace k2 {

// Returns a tensor of zeros, torch.float32 on mps.  The host writes the zeros.
inline torch::Tensor MpsZeros(const std::vector<int64_t> &sizes) {
  return HostZeros(sizes, torch::device(torch::kMPS));
}

}  // namespace k2

// Binds a function for the modules in k2/python/k2/mps.
inline void PybindMps(py::module &m) {
  m.def("mps_zeros", &k2::MpsZeros, py::arg("sizes"));
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_H_
