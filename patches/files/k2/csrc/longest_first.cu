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

#include "k2/csrc/array_ops.h"
#include "k2/csrc/eval.h"
#include "k2/csrc/longest_first.h"
#include "k2/csrc/macros.h"
#include "k2/csrc/ragged_ops.h"

namespace k2 {

Array1<int32_t> NumFrames(const Array1<int32_t> &a_to_b_map,
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

LongestFirst::LongestFirst(FsaVec &fsas, const Array1<int32_t> &map,
                           const Array1<int32_t> &num_frames) {
  Array1<int32_t> keys = num_frames.Clone();
  Sort<int32_t, GreaterThan<int32_t>>(&keys, &order_);
  a_fsas = Index(fsas, 0, order_, &arcs_);
  a_to_b_map = map[order_];
}

void LongestFirst::Restore(FsaVec *lattices, Array1<int32_t> *arc_map_a,
                           Array1<int32_t> *arc_map_b) const {
  Array1<int32_t> arcs;
  *lattices = Index(*lattices, 0, InvertPermutation(order_), &arcs);
  if (arc_map_a != nullptr) *arc_map_a = arcs_[(*arc_map_a)[arcs]];
  if (arc_map_b != nullptr) *arc_map_b = (*arc_map_b)[arcs];
}

}  // namespace k2
