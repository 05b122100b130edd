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

#ifndef K2_CSRC_MPS_DENSE_FSA_VEC_H_
#define K2_CSRC_MPS_DENSE_FSA_VEC_H_

#include <vector>

#include "k2/csrc/fsa.h"

namespace at {
class Tensor;
}

namespace k2 {

// A part of a sequence; it becomes one FSA of a DenseFsaVec.
struct Segment {
  int32_t sequence;  // its index in log_probs
  int32_t start_frame, num_frames;
};

/* Makes a DenseFsaVec on the GPU, without a wait.  A dispatch makes up to
   kDvMaxSegments segments, see kernels/dense_fsa_vec.h.

   @param [in] log_probs   torch.float32 on mps, indexed
                           [sequence][frame][symbol], of any strides.
   @param [in] segments    Parts of log_probs, at least one.
   @param [out] scores     The scores of the result as a contiguous tensor,
                           which shares the result's memory.
 */
DenseFsaVec DenseFsaVecForward(const at::Tensor &log_probs,
                               const std::vector<Segment> &segments,
                               at::Tensor *scores);

/* Computes the gradient of log_probs from the gradient of `scores`, in as many
   dispatches as DenseFsaVecForward().  If segments overlap, their gradients are
   added in the order of `segments`.

   @param [in] scores_grad   torch.float32 on mps, in the shape of `scores`,
                             contiguous.
   @param [out] grad         torch.float32 on mps, in the shape of log_probs,
                             contiguous; all elements are written.
 */
void DenseFsaVecBackward(const at::Tensor &scores_grad,
                         const std::vector<Segment> &segments,
                         const at::Tensor &grad);

}  // namespace k2

#endif  // K2_CSRC_MPS_DENSE_FSA_VEC_H_
