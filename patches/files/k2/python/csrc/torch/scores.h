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

#ifndef K2_PYTHON_CSRC_TORCH_SCORES_H_
#define K2_PYTHON_CSRC_TORCH_SCORES_H_

#include <memory>
#include <type_traits>

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/macros.h"
#include "k2/csrc/torch_util.h"
#include "k2/python/csrc/torch.h"

// Scores in double precision on mps, where tensors cannot be torch.float64.
//
// The host computes these scores in double precision, in memory of the mps
// context.  Inside k2 (in the cache of an Fsa, and between autograd functions),
// the scores are a tensor of torch.float64 on the CPU.  Users of k2 get the
// scores, and their gradients, as torch.float32 on mps.
//
// The functions of _k2 take both forms.  The functions that return a gradient
// of the arcs' scores return it as users get it.  All other functions return
// the scores as they are inside k2; then Python calls k2.mps.public_scores().
//
// On other devices, the functions of this file convert nothing.

namespace k2 {

inline bool HasNoDouble(const ContextPtr &c) {
  return c->GetDeviceType() == kMps;
}

/* Returns scores from Python as an array in the context of `fsas`.

   @tparam T           float or double.
   @param [in] fsas    The FSAs that the scores belong to.
   @param [in] tensor  A 1-D tensor of T with stride 1, on the device of `fsas`.
                       If T is double and the device has no float64: a 1-D
                       tensor of any stride, either torch.float64 on the CPU or
                       torch.float32 on the device.  If `tensor` is
                       torch.float64 with stride 1, the array shares its memory.
 */
template <typename T>
Array1<T> ScoresOf(FsaOrVec &fsas, torch::Tensor tensor) {
  ContextPtr &c = fsas.Context();
  if (!HasNoDouble(c) || !std::is_same<T, double>::value)
    return FromTorch<T>(tensor);

  if (tensor.scalar_type() != torch::kDouble) {
    K2_CHECK(c->IsCompatible(*GetContext(tensor)))
        << "Expected scores on the device of the FSAs. Given: "
        << tensor.device();
    Array1<T> ans(c, tensor.numel());
    T *ans_data = ans.Data();
    auto scores = EvalAccessor<float, 1>(tensor);
    K2_EVAL(
        c, ans.Dim(), lambda_convert,
        (int32_t i)->void { ans_data[i] = scores[i]; });
    return ans;
  }

  if (tensor.numel() != 0 && tensor.stride(0) != 1)
    tensor = tensor.clone(torch::MemoryFormat::Contiguous);
  Array1<T> on_cpu = FromTorch<T>(tensor);
  // Only the host reads doubles in the context `c`, so the array may use memory
  // of the CPU.
  auto region = std::make_shared<Region>();
  region->context = c;
  region->data = on_cpu.Data();
  region->deleter_context = new c10::Storage(tensor.storage());
  region->num_bytes = on_cpu.Dim() * sizeof(T);
  region->bytes_used = region->num_bytes;
  return Array1<T>(on_cpu.Dim(), region, 0);
}

// Returns `scores` in the form that a user gets.  If `scores` is torch.float64
// and the device of `fsas` has no float64, returns a torch.float32 tensor on
// the device of `fsas`.  Otherwise returns `scores` itself.
inline torch::Tensor PublicScores(FsaOrVec &fsas, torch::Tensor scores) {
  if (!HasNoDouble(fsas.Context()) || scores.scalar_type() != torch::kDouble)
    return scores;
  Array1<float> ans = ScoresOf<double>(fsas, scores).AsType<float>();
  return ToTorch(ans);
}

// The backward pass of PublicScores().  `scores` is the gradient of the result
// of PublicScores().  Returns this gradient as torch.float64 on the CPU if the
// device of `fsas` has no float64, else `scores` itself.
inline torch::Tensor InternalScores(FsaOrVec &fsas, torch::Tensor scores) {
  if (!HasNoDouble(fsas.Context())) return scores;
  Array1<double> ans = ScoresOf<double>(fsas, scores);
  return ToTorch(ans);
}

inline torch::Device TorchDeviceOf(FsaOrVec &fsas) {
  ContextPtr &c = fsas.Context();
  return {ToTorchDeviceType(c->GetDeviceType()),
          static_cast<torch::DeviceIndex>(c->GetDeviceId())};
}

}  // namespace k2

#endif  // K2_PYTHON_CSRC_TORCH_SCORES_H_
