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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_DENSE_FSA_VEC_H_
#define K2_PYTHON_CSRC_TORCH_MPS_DENSE_FSA_VEC_H_

#include <tuple>
#include <vector>

#include "k2/csrc/mps/dense_fsa_vec.h"
#include "k2/python/csrc/torch.h"

#if K2_WITH_MPS

// Returns the rows of a tensor as segments.  The tensor is torch.int32 on the
// CPU.  Its three columns are sequence, first frame and number of frames.
inline std::vector<k2::Segment> ToSegments(torch::Tensor segments) {
  segments = segments.contiguous();
  const int32_t *data = segments.data_ptr<int32_t>();
  std::vector<k2::Segment> ans;
  for (int64_t i = 0; i != segments.size(0); ++i, data += 3)
    ans.push_back({data[0], data[1], data[2]});
  return ans;
}

#endif  // K2_WITH_MPS

// Binds the functions that k2/python/k2/mps/dense.py calls.
inline void PybindMpsDenseFsaVec(py::module &m) {
#if K2_WITH_MPS
  // The bound functions touch no Python object, so they release the GIL.
  using NoGil = py::call_guard<py::gil_scoped_release>;
  m.def(
      "mps_dense_fsa_vec_forward",
      [](torch::Tensor log_probs, torch::Tensor segments) {
        torch::Tensor scores;
        k2::DenseFsaVec ans =
            k2::DenseFsaVecForward(log_probs, ToSegments(segments), &scores);
        return std::make_tuple(ans, scores);
      },
      NoGil());
  m.def(
      "mps_dense_fsa_vec_backward",
      [](torch::Tensor scores_grad, torch::Tensor segments,
         torch::Tensor grad) {
        k2::DenseFsaVecBackward(scores_grad, ToSegments(segments), grad);
      },
      NoGil());
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_DENSE_FSA_VEC_H_
