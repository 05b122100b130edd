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

#ifndef K2_CSRC_MPS_INTERSECT_DENSE_PRUNED_H_
#define K2_CSRC_MPS_INTERSECT_DENSE_PRUNED_H_

#include <memory>
#include <string>

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/mps/lattice.h"

namespace k2 {

// The arguments that IntersectDensePruned() and OnlineDenseIntersecter share.
struct PrunedOptions {
  float search_beam, output_beam;
  int32_t min_active, max_active;
  bool allow_partial;
};

/* IntersectDensePruned() on the GPU.  The lattice is bit for bit the CPU's
   lattice.

   The host waits once, to learn how many states and arcs to allocate.  If the
   estimated memory was not enough, the GPU starts again with more memory, and
   the host waits again.  The host does not wait for the lattice itself.

   @param [in] a_fsas      Decoding graphs on device mps, with 2 or 3 axes.
   @param [in] b_fsas      Scores of frames, on device mps.
   @param [in] num_rows    The number of rows of b_fsas that the longest
                           sequence has.
   @param [out] why_host   If the function returns nullptr although the GPU was
                           estimated to be faster, the reason; else "".
   @param [in] groups      How many threadgroups work on a sequence.  If 0, the
                           function chooses the number that should be fastest.
                           The result does not depend on the number.
   @return   The lattice.  nullptr if IntersectDensePruned() has to do the work,
             because the host is estimated to be faster (see placement.h), the
             GPU would need too much memory, IntersectDensePruned() may refuse
             the input, or the kernels cannot compute with the scores or beams.
 */
std::unique_ptr<FramedLattice> IntersectDensePrunedMps(
    FsaVec &a_fsas, DenseFsaVec &b_fsas, int32_t num_rows,
    const PrunedOptions &options, std::string *why_host, int32_t groups = 0);

}  // namespace k2

#endif  // K2_CSRC_MPS_INTERSECT_DENSE_PRUNED_H_
