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

#ifndef K2_CSRC_MPS_KERNELS_ARC_H_
#define K2_CSRC_MPS_KERNELS_ARC_H_

// An arc; the struct is the same as in k2/csrc/fsa.h.
struct Arc {
  int src_state, dest_state, label;
  float score;
};

// Returns the column of b_scores for an arc's label, which is label + 1.  For
// the largest label, returns the label itself, because the addition would
// overflow.
inline int ColumnOf(Arc arc) {
  return arc.label == 0x7fffffff ? arc.label : arc.label + 1;
}

#endif  // K2_CSRC_MPS_KERNELS_ARC_H_
