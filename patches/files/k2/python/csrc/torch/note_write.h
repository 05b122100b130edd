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

#ifndef K2_PYTHON_CSRC_TORCH_NOTE_WRITE_H_
#define K2_PYTHON_CSRC_TORCH_NOTE_WRITE_H_

#include "k2/python/csrc/torch.h"

namespace k2 {

// Tensors that are made in inference mode have no version.
inline bool HasVersion(const torch::Tensor &tensor) {
#if K2_TORCH_VERSION_MAJOR > 1 || \
    (K2_TORCH_VERSION_MAJOR == 1 && K2_TORCH_VERSION_MINOR >= 9)
  return !tensor.is_inference();
#else
  return true;
#endif
}

/* Called before k2 writes to a tensor.  Raises the version of the tensor, and
   of its views, so that a backward pass that needs the old values throws. */
inline void NoteWrite(const torch::Tensor &tensor) {
  if (HasVersion(tensor)) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace k2

#endif  // K2_PYTHON_CSRC_TORCH_NOTE_WRITE_H_
