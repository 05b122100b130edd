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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_LABELS_H_
#define K2_PYTHON_CSRC_TORCH_MPS_LABELS_H_

#include <vector>

#include "k2/csrc/array.h"
#include "k2/csrc/array_ops.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/torch_util.h"
#include "k2/python/csrc/torch.h"
#include "k2/python/csrc/torch/versions.h"

namespace k2 {

// Returns a copy of the labels of FSAs on mps.  The host makes the copy, so a
// function that reads the copy on the host need not wait for the GPU.
inline torch::Tensor MpsLabels(const FsaOrVec &fsas) {
  Array1<int32_t> ans(fsas.Context(), fsas.NumElements());
  fsas.Context()->Sync();
  const Arc *arcs = fsas.values.Data();
  int32_t *labels = ans.Data();
  for (int32_t i = 0; i != ans.Dim(); ++i) labels[i] = arcs[i].label;
  return ToTorch(ans);
}

// Sets the labels of FSAs on mps.  The host copies the labels.
inline void MpsSetLabels(FsaOrVec &fsas, const torch::Tensor &labels) {
  const Array1<int32_t> array = FromTorch<int32_t>(labels.contiguous());
  K2_CHECK_EQ(array.Dim(), fsas.NumElements());
  fsas.Context()->Sync();
  Arc *arcs = fsas.values.Data();
  const int32_t *from = array.Data();
  for (int32_t i = 0; i != array.Dim(); ++i) arcs[i].label = from[i];
  VersionsOf(fsas).labels.bump();
}

// Returns the concatenation of arrays on mps.  The host copies the arrays.
template <typename T>
torch::Tensor MpsCat(const std::vector<torch::Tensor> &tensors) {
  std::vector<Array1<T>> arrays;
  for (const torch::Tensor &tensor : tensors)
    arrays.push_back(FromTorch<T>(tensor));
  Array1<T> ans = Cat(arrays[0].Context(), arrays.size(), arrays.data());
  return ToTorch(ans);
}

// Returns a copy, on the CPU, of an array on mps.
template <typename T>
torch::Tensor MpsToCpu(const torch::Tensor &tensor) {
  Array1<T> ans = FromTorch<T>(tensor).To(GetCpuContext());
  return ToTorch(ans);
}

}  // namespace k2

// Binds the functions that k2/python/k2/fsa.py and ops.py call.
inline void PybindMpsLabels(py::module &m) {
#if K2_WITH_MPS
  m.def("mps_labels", &k2::MpsLabels, py::arg("fsas"));
  m.def("mps_set_labels", &k2::MpsSetLabels, py::arg("fsas"),
        py::arg("labels"));
  // The tensors have one axis, are contiguous, and are all torch.int32 or all
  // torch.float32.
  m.def(
      "mps_cat",
      [](const std::vector<torch::Tensor> &tensors) {
        return tensors.at(0).scalar_type() == torch::kInt
                   ? k2::MpsCat<int32_t>(tensors)
                   : k2::MpsCat<float>(tensors);
      },
      py::arg("tensors"));
  m.def(
      "mps_to_cpu",
      [](const torch::Tensor &tensor) {
        return tensor.scalar_type() == torch::kInt
                   ? k2::MpsToCpu<int32_t>(tensor)
                   : k2::MpsToCpu<float>(tensor);
      },
      py::arg("tensor"));
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_LABELS_H_
