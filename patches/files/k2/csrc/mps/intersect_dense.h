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

#ifndef K2_CSRC_MPS_INTERSECT_DENSE_H_
#define K2_CSRC_MPS_INTERSECT_DENSE_H_

#include <vector>

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/ragged.h"

namespace k2 {

/* The forward and the backward pass of MultiGraphDenseIntersect on the GPU, in
   one dispatch that nothing waits for.  The scores are those that the host
   computes, to the bit.

   Does nothing and returns false if that is not the context's device, or if
   the host is to do it (see placement.h; sizes that the kernel does not have
   are the host's as well).

   @param [in] a_fsas         Decoding graphs.
   @param [in] incoming_arcs  Result of GetIncomingArcs(a_fsas, ...).
   @param [in] b_fsas         Scores of frames, sequences by decreasing length.
   @param [in] a_to_b_map     For each graph the index of its sequence in
                              b_fsas; nondecreasing.
   @param [out] state_scores  For each step 0 <= t <= T, T the number of frames
                              of the first graph's sequence, an array of 2 *
                              (the number of states of graphs whose sequence
                              has t frames or more).  The arrays are replaced
                              by arrays of the same size, which get, for each
                              graph, its states' backward scores t frames
                              before its end, then their forward scores after
                              t frames.
   @return   Whether the scores have been (or will be, once the context is
             waited for) written.
 */
bool IntersectDenseMps(FsaVec &a_fsas, Ragged<int32_t> &incoming_arcs,
                       DenseFsaVec &b_fsas, Array1<int32_t> a_to_b_map,
                       const std::vector<Array1<float> *> &state_scores);

#if !K2_WITH_MPS

inline bool IntersectDenseMps(FsaVec &, Ragged<int32_t> &, DenseFsaVec &,
                              Array1<int32_t>,
                              const std::vector<Array1<float> *> &) {
  return false;
}

#endif  // !K2_WITH_MPS

}  // namespace k2

#endif  // K2_CSRC_MPS_INTERSECT_DENSE_H_
