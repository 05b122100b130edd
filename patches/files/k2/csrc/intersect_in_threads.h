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

#ifndef K2_CSRC_INTERSECT_IN_THREADS_H_
#define K2_CSRC_INTERSECT_IN_THREADS_H_

#include <functional>

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"

namespace k2 {

// Intersects one sequence with its graph in the calling thread.  The outputs
// are those of IntersectDensePruned().
using IntersectSequence =
    std::function<void(FsaVec &graph, DenseFsaVec &sequence, FsaVec *lattice,
                       Array1<int32_t> *arc_map_a, Array1<int32_t> *arc_map_b)>;

/* Does what IntersectDensePruned() does on the CPU, but intersects each
   sequence separately, in several threads.

   The result equals the result of IntersectDensePruned() for all sequences at
   once.  In that function, the longest sequence decides how many windows of
   frames are pruned, but the additional windows do not change the lattice of a
   shorter sequence.  A window that begins after the end of the sequence prunes
   nothing of this sequence.  A window that reaches the end of the sequence
   keeps what the previous window has kept.

   @param [in] a_fsas        Decoding graphs, with 3 axes.
   @param [in] b_fsas        As for IntersectDensePruned().
   @param [in] num_threads   The most threads to use.
   @param [in] intersect     Called in these threads, once for each sequence.
   @param [out] out, arc_map_a, arc_map_b   As for IntersectDensePruned().
   @return   Whether the sequences were intersected.  false if there is only one
             thread or sequence, the device is not the CPU, a sequence has no
             rows, or the graphs do not fit the sequences.
 */
bool IntersectInThreads(FsaVec &a_fsas, DenseFsaVec &b_fsas,
                        int32_t num_threads, const IntersectSequence &intersect,
                        FsaVec *out, Array1<int32_t> *arc_map_a,
                        Array1<int32_t> *arc_map_b);

}  // namespace k2

#endif  // K2_CSRC_INTERSECT_IN_THREADS_H_
