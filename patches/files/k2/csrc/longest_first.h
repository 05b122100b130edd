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
#include <utility>

#include "k2/csrc/array_ops.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/ragged_ops.h"

namespace k2 {

// What NumFrames() returns for an FSA whose sequence does not exist.
constexpr int32_t kNoSequence = std::numeric_limits<int32_t>::max();

/* Returns the number of rows of scores that each decoding graph meets.

     @param [in] a_to_b_map  For each graph, the index of its sequence.
     @param [in] b_shape     The shape of the DenseFsaVec.
     @return  For each graph the number of rows, the final one included, or
              kNoSequence if a_to_b_map is not within [0, b_shape.Dim0()): the
              largest number, so that a caller that reads the greatest one needs
              no other transfer for this check.
 */
inline Array1<int32_t> NumFrames(const Array1<int32_t> &a_to_b_map,
                                 RaggedShape &b_shape) {
  ContextPtr c = GetContext(a_to_b_map, b_shape);
  int32_t num_seqs = b_shape.Dim0();
  Array1<int32_t> ans(c, a_to_b_map.Dim());
  const int32_t *a_to_b_map_data = a_to_b_map.Data(),
                *row_splits_data = b_shape.RowSplits(1).Data();
  int32_t *ans_data = ans.Data();
  K2_EVAL(
      c, ans.Dim(), lambda_set_num_frames, (int32_t i)->void {
        int32_t j = a_to_b_map_data[i];
        ans_data[i] = j < 0 || j >= num_seqs
                          ? kNoSequence
                          : row_splits_data[j + 1] - row_splits_data[j];
      });
  return ans;
}

/* Decoding graphs in the order of their numbers of frames, the longest first,
   and the way back for the result. */
class LongestFirst {
 public:
  LongestFirst(FsaVec &fsas, const Array1<int32_t> &map,
               const Array1<int32_t> &num_frames) {
    Array1<int32_t> keys = num_frames.Clone();
    Sort<int32_t, GreaterThan<int32_t>>(&keys, &order_);
    a_fsas = Index(fsas, 0, order_, &arcs_);
    a_to_b_map = map[order_];
  }

  /* Puts the lattices of `a_fsas` in the order of the constructor's `fsas`.

       @param [in,out] lattices   One for each FSA.
       @param [in,out] arc_map_a  From arcs of `lattices` to arcs of `a_fsas`;
                       on return, to arcs of the constructor's `fsas`.
       @param [in,out] arc_map_b  From arcs of `lattices` to anything.
  */
  void Restore(FsaVec *lattices, Array1<int32_t> *arc_map_a,
               Array1<int32_t> *arc_map_b) const {
    Array1<int32_t> arcs;
    *lattices = Index(*lattices, 0, InvertPermutation(order_), &arcs);
    if (arc_map_a != nullptr) *arc_map_a = arcs_[(*arc_map_a)[arcs]];
    if (arc_map_b != nullptr) *arc_map_b = (*arc_map_b)[arcs];
  }

  FsaVec a_fsas;
  Array1<int32_t> a_to_b_map;

 private:
  Array1<int32_t> order_;
  Array1<int32_t> arcs_;  // for each arc of a_fsas, its index before
};

}  // namespace k2

#endif  // K2_CSRC_LONGEST_FIRST_H_
