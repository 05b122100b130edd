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

#ifndef K2_CSRC_MPS_GPU_ARRAY_H_
#define K2_CSRC_MPS_GPU_ARRAY_H_

#include <algorithm>
#include <cstdint>

#include "k2/csrc/array.h"
#include "k2/csrc/mps/mps_context.h"
#include "k2/csrc/torch_util.h"

// Allocates memory of torch for the GPU to write, without a wait.  Memory for
// the host to write comes from Context::Allocate(), because earlier work of the
// GPU may still use torch's memory.

namespace k2 {

/* Returns an uninitialized, contiguous tensor on mps with one axis and
   max(dim, 1) elements.  The tensor has at least one element because Metal has
   no empty buffers.
 */
template <typename T>
torch::Tensor GpuTensor(int64_t dim) {
  return torch::empty(
      {std::max<int64_t>(dim, 1)},
      torch::dtype(c10::CppTypeToScalarType<T>::value).device(kTorchMps, 0));
}

/* Returns an array over the memory of a tensor that GpuTensor() returned.  The
   array has `dim` elements of sizeof(T) bytes.
 */
template <typename T>
Array1<T> GpuArray(const torch::Tensor &tensor, int32_t dim) {
  return Array1<T>(dim, NewMpsRegion(tensor), 0);
}

}  // namespace k2

#endif  // K2_CSRC_MPS_GPU_ARRAY_H_
