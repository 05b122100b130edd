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

#ifndef K2_CSRC_MPS_GRAPH_INDEX_H_
#define K2_CSRC_MPS_GRAPH_INDEX_H_

#include <utility>

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"
#include "torch/all.h"

namespace k2 {

// What kernels need to know about decoding graphs, in addition to the arcs.
// The index depends only on the states and labels of the arcs, so it is made
// once for each FsaVec.  k2/python/k2/mps/graph_index.py keeps the index with
// the Fsa.
struct GraphIndex {
  // All members share this memory.  The tensors are torch.int32 on mps.
  Array1<int32_t> memory;

  torch::Tensor incoming_begins;  // [states + 1], where the arcs that enter
                                  // each state begin in `incoming`
  torch::Tensor incoming;         // [arcs], indexes of the arcs, sorted by the
                                  // states that they enter
  torch::Tensor by_label;         // [arcs], indexes of the arcs, sorted by FSA
                                  // and label
  torch::Tensor fsa_of_arc;       // [arcs], the FSA of each arc
  torch::Tensor labels;           // [FSAs, 2], the lowest and the highest label
                                  // of each FSA, -1 for an FSA without arcs
  torch::Tensor every_fsa;        // [FSAs]: 0, 1, ...
};

/* Returns an index that is not filled, in memory that the host may write.  The
   caller must call FillGraphIndex() before a kernel gets the index.

   Waits for the GPU, because pending work may still use the memory.

   @param [in] fsas   On mps, with arcs.
 */
GraphIndex ReserveGraphIndex(FsaVec &fsas);

/* Fills, on the host and without a wait, an index that ReserveGraphIndex()
   returned.  The caller must make sure that no pending work of the GPU writes
   states or labels of arcs.

   @return   The lowest and the highest element of index.labels.
 */
std::pair<int32_t, int32_t> FillGraphIndex(FsaVec &fsas, GraphIndex &index);

/* Returns an index that the GPU fills, in one dispatch, without a wait.

   @param [in] fsas   On mps, with arcs.
 */
GraphIndex GraphIndexMps(FsaVec &fsas);

}  // namespace k2

#endif  // K2_CSRC_MPS_GRAPH_INDEX_H_
