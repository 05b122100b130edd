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

#ifndef K2_CSRC_LONGEST_FIRST_H_
#define K2_CSRC_LONGEST_FIRST_H_

#include <limits>

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/ragged.h"

namespace k2 {

// What NumFrames() returns for an FSA whose sequence does not exist.
constexpr int32_t kNoSequence = std::numeric_limits<int32_t>::max();

/* Returns, for each decoding graph, how many rows of scores its sequence has.

     @param [in] a_to_b_map  For each graph, the index of its sequence.
     @param [in] b_shape     The shape of the DenseFsaVec.
     @return  For each graph the number of rows, including the final row, or
              kNoSequence if a_to_b_map is not within [0, b_shape.Dim0()).
              kNoSequence is the largest number, so a caller that reads the
              maximum of the result finds kNoSequence without another transfer.
 */
Array1<int32_t> NumFrames(const Array1<int32_t> &a_to_b_map,
                          RaggedShape &b_shape);

/* Sorts decoding graphs by the lengths of their sequences, the longest first,
   and puts the lattices back into the caller's order. */
class LongestFirst {
 public:
  LongestFirst(FsaVec &fsas, const Array1<int32_t> &map,
               const Array1<int32_t> &num_frames);

  /* Puts the lattices of `a_fsas` in the order of the constructor's `fsas`.

       @param [in,out] lattices   One for each FSA.
       @param [in,out] arc_map_a  A map from arcs of `lattices` to arcs of
                       `a_fsas`; on return, to arcs of the constructor's `fsas`.
       @param [in,out] arc_map_b  A map from arcs of `lattices` to any elements.
  */
  void Restore(FsaVec *lattices, Array1<int32_t> *arc_map_a,
               Array1<int32_t> *arc_map_b) const;

  FsaVec a_fsas;
  Array1<int32_t> a_to_b_map;

 private:
  Array1<int32_t> order_;
  Array1<int32_t> arcs_;  // for each arc of a_fsas, its index in `fsas`
};

}  // namespace k2

#endif  // K2_CSRC_LONGEST_FIRST_H_
