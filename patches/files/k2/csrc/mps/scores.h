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

#ifndef K2_CSRC_MPS_SCORES_H_
#define K2_CSRC_MPS_SCORES_H_

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/ragged.h"

// What GetForwardScores(), GetBackwardScores() and their gradients do for each
// batch of states, for all batches at once.
//
// On the GPU that is one dispatch that brings arcs into order, and one that
// goes through the batches.  The gradient of backward scores in the tropical
// semiring takes one more, to find the best arcs.  Nothing waits for them.
//
// Each does nothing and returns false if the context's device is another; if
// the host is faster (see placement.h); and in double precision, which Metal
// does not have.

namespace k2 {

// Which of the two functions it is.
enum class ScoresDirection { kForward, kBackward };

/* Computes the scores of states.

   The results are the CPU's to the bit, but in the log semiring, where they
   are those of the GPU's log() and exp().

   @param [in] direction      kForward for the sums over entering arcs.
   @param [in] fsas           An FsaVec, acyclic.
   @param [in] state_batches  Indexed [batch][fsa][state], of idx01 of `fsas`.
   @param [in] arc_batches    Indexed [batch][fsa][state][arc], of idx012:
                              entering arcs if forward, else leaving arcs.
   @param [in] log_semiring   Else tropical.
   @param [in,out] scores     Of fsas.TotSize(1) elements.  On entry 0 for the
                              states where the recursion begins, -infinity for
                              others.
   @param [out] best_arcs     Of as many elements; gets the idx012 of the last
                              of the best arcs of each state, -1 if it has no
                              arc.  May be nullptr; must be in the log semiring.
   @return    Whether `scores` has been written.
 */
bool StateScoresMps(ScoresDirection direction, FsaVec &fsas,
                    Ragged<int32_t> &state_batches,
                    Ragged<int32_t> &arc_batches, bool log_semiring,
                    Array1<float> &scores, Array1<int32_t> *best_arcs);

inline bool StateScoresMps(ScoresDirection, FsaVec &, Ragged<int32_t> &,
                           Ragged<int32_t> &, bool, Array1<double> &,
                           Array1<int32_t> *) {
  return false;
}

/* Computes the gradient of the arcs' scores from that of the states' scores.

   The CPU dies if an arc contributes more than 1.1 of its state's score, which
   rounding errors can make of scores beyond the range of float; this does not.

   @param [in] direction      Of the function whose gradient it is.
   @param [in] fsas, state_batches, log_semiring   As given to that function.
   @param [in] arc_batches    Leaving arcs if forward, else entering arcs.
   @param [in] scores         What that function returned.
   @param [in] best_arcs      If forward in the tropical semiring, its best
                              arcs; else nullptr.
   @param [in,out] state_grad  The gradient of `scores`; changed.
   @param [out] arc_grad      Of fsas.NumElements() elements, all are written.
   @return    Whether `arc_grad` has been written.
 */
bool StateScoresBackpropMps(ScoresDirection direction, FsaVec &fsas,
                            Ragged<int32_t> &state_batches,
                            Ragged<int32_t> &arc_batches, bool log_semiring,
                            Array1<float> scores,
                            const Array1<int32_t> *best_arcs,
                            Array1<float> &state_grad, Array1<float> &arc_grad);

inline bool StateScoresBackpropMps(ScoresDirection, FsaVec &, Ragged<int32_t> &,
                                   Ragged<int32_t> &, bool, Array1<double>,
                                   const Array1<int32_t> *, Array1<double> &,
                                   Array1<double> &) {
  return false;
}

#if !K2_WITH_MPS

inline bool StateScoresMps(ScoresDirection, FsaVec &, Ragged<int32_t> &,
                           Ragged<int32_t> &, bool, Array1<float> &,
                           Array1<int32_t> *) {
  return false;
}

inline bool StateScoresBackpropMps(ScoresDirection, FsaVec &, Ragged<int32_t> &,
                                   Ragged<int32_t> &, bool, Array1<float>,
                                   const Array1<int32_t> *, Array1<float> &,
                                   Array1<float> &) {
  return false;
}

#endif  // !K2_WITH_MPS

}  // namespace k2

#endif  // K2_CSRC_MPS_SCORES_H_
