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

#ifndef K2_CSRC_MPS_ARC_POST_H_
#define K2_CSRC_MPS_ARC_POST_H_

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/ragged.h"

// GetTotScores(), GetArcPost() and their gradients on the GPU, one dispatch
// each, that nothing waits for.
//
// All do nothing and return false if the context's device is another, if the
// host is to do it (see placement.h), and for scores in double precision, which
// Metal does not have.

namespace at {
class Tensor;
}

namespace k2 {

/* Takes the total score of each FSA out of the forward scores.

   @param [in] fsas             An FsaVec.
   @param [in] forward_scores   Of fsas.TotSize(1) elements.
   @param [out] tot_scores      Gets fsas.Dim0() elements; -infinity for FSAs
                                without states.
   @return    Whether `tot_scores` has been written.
 */
bool TotScoresMps(FsaVec &fsas, Array1<float> forward_scores,
                  Array1<float> *tot_scores);

/* Computes the gradient of the arcs' scores from that of the total scores in
   the log semiring.  It is the CPU's up to what exp() is on the GPU.

   All tensors are torch.float32 on device mps.

   @param [in] fsas        An FsaVec.
   @param [in] arc_post    Of fsas.NumElements() elements, contiguous; as
                           GetArcPost() returned it.
   @param [in] tot_grad    The gradient of the total scores, of fsas.Dim0()
                           elements.
   @param [out] arc_grad   Of fsas.NumElements() elements, contiguous; all are
                           written.
   @return    Whether `arc_grad` has been written.
 */
bool TotScoresLogBackpropMps(FsaVec &fsas, const at::Tensor &arc_post,
                             const at::Tensor &tot_grad,
                             const at::Tensor &arc_grad);

/* Computes the log-posterior of each arc, to the bit as the CPU does.

   @param [in] fsas             An FsaVec.
   @param [in] forward_scores   Of fsas.TotSize(1) elements.
   @param [in] backward_scores  As many.
   @param [out] arc_post        Gets fsas.NumElements() elements.
   @return    Whether `arc_post` has been written.
 */
bool ArcPostMps(FsaVec &fsas, Array1<float> forward_scores,
                Array1<float> backward_scores, Array1<float> *arc_post);

/* Computes the gradient of the states' scores from that of the posteriors.

   For a state of few arcs the sums are those of the CPU to the bit; others, and
   those over an FSA, are the same up to the order of their terms.

   @param [in] fsas           As given to ArcPostMps().
   @param [in] incoming_arcs  Result of GetIncomingArcs(fsas, ...).
   @param [in] arc_post_grad  Of fsas.NumElements() elements.
   @param [out] forward_grad  The gradient of `forward_scores`, of
                              fsas.TotSize(1) elements, all are written.
   @param [out] backward_grad  That of `backward_scores`, as well.
   @return    Whether `forward_grad` and `backward_grad` have been written.
 */
bool ArcPostBackpropMps(FsaVec &fsas, Ragged<int32_t> &incoming_arcs,
                        Array1<float> arc_post_grad,
                        Array1<float> &forward_grad,
                        Array1<float> &backward_grad);

inline bool TotScoresMps(FsaVec &, Array1<double>, Array1<double> *) {
  return false;
}

inline bool ArcPostMps(FsaVec &, Array1<double>, Array1<double>,
                       Array1<double> *) {
  return false;
}

inline bool ArcPostBackpropMps(FsaVec &, Ragged<int32_t> &, Array1<double>,
                               Array1<double> &, Array1<double> &) {
  return false;
}

#if !K2_WITH_MPS

inline bool TotScoresMps(FsaVec &, Array1<float>, Array1<float> *) {
  return false;
}

inline bool TotScoresLogBackpropMps(FsaVec &, const at::Tensor &,
                                    const at::Tensor &, const at::Tensor &) {
  return false;
}

inline bool ArcPostMps(FsaVec &, Array1<float>, Array1<float>,
                       Array1<float> *) {
  return false;
}

inline bool ArcPostBackpropMps(FsaVec &, Ragged<int32_t> &, Array1<float>,
                               Array1<float> &, Array1<float> &) {
  return false;
}

#endif  // !K2_WITH_MPS

}  // namespace k2

#endif  // K2_CSRC_MPS_ARC_POST_H_
