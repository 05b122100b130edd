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

#include <memory>

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/mps/graph_index.h"
#include "k2/csrc/mps/lattice.h"

namespace k2 {

/* Returns whether IntersectDenseMps() is estimated to be faster than the host
   (see placement.h).

   @param [in] a_fsas     Decoding graphs on device mps.
   @param [in] num_rows   Frames of the longest sequence, plus 1.
 */
bool PreferIntersectDenseMps(FsaVec &a_fsas, int64_t num_rows);

/* IntersectDense() on the GPU.  The lattice is bit for bit the CPU's lattice,
   except that rounding never prunes the best path.  Returns nullptr if the
   lattice would exceed a limit: then the host must intersect, and narrow the
   beam.

   The host waits once, to learn how many states and arcs to allocate.  If
   rounding may prune the best path, the host waits once more.  The host does
   not wait for the lattice itself.

   @param [in] a_fsas         Decoding graphs, with 3 axes and arcs.
   @param [in] index          The index of a_fsas.
   @param [in] b_fsas         Scores of frames.
   @param [in] num_rows       The number of rows of b_fsas that the longest
                              sequence has.
   @param [in] a_to_b_map     For each graph the index of its sequence in
                              b_fsas, not decreasing.  torch.int32 on mps,
                              contiguous.
   @param [in] output_beam, max_states, max_arcs   As for IntersectDense().
 */
std::unique_ptr<Lattice> IntersectDenseMps(
    FsaVec &a_fsas, const GraphIndex &index, DenseFsaVec &b_fsas,
    int32_t num_rows, const at::Tensor &a_to_b_map, float output_beam,
    int32_t max_states, int32_t max_arcs);

}  // namespace k2

#endif  // K2_CSRC_MPS_INTERSECT_DENSE_H_
