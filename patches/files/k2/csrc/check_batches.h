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

#ifndef K2_CSRC_CHECK_BATCHES_H_
#define K2_CSRC_CHECK_BATCHES_H_

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"

namespace k2 {

/* The functions that compute scores take lists of states or arcs, for example
   batches of states.  k2 has made these lists for the same FSAs, and Python
   keeps the lists for a while.  With the lists of other FSAs, k2 would read and
   write memory that does not belong to the arrays.

   Each function below throws std::invalid_argument, Python's ValueError, if the
   sizes of a list do not fit the FSAs.  If a list has an index that does not
   exist in the FSAs, the function reports the index as CheckIndexes() does.  No
   function waits for a GPU. */

// Checks that state_batches has the sizes of what GetStateBatches() returns.
// Does not read the indexes.
void CheckSizesOfBatches(FsaVec &fsas, Ragged<int32_t> &state_batches);

// Checks that state_batches can be what GetStateBatches() returns:
// [batch][fsa][state], with the idx01 of states.
void CheckStateBatches(FsaVec &fsas, Ragged<int32_t> &state_batches);

// Does what CheckStateBatches() does.  If the FSAs are on the CPU, also checks
// that each state occurs once.
void CheckAllStates(FsaVec &fsas, Ragged<int32_t> &state_batches);

// Does what CheckStateBatches() does, and checks that arc_batches fits
// state_batches: [batch][fsa][state][arc], with the idx012 of arcs.
void CheckArcBatches(FsaVec &fsas, Ragged<int32_t> &state_batches,
                     Ragged<int32_t> &arc_batches);

// Checks that incoming_arcs can be what GetIncomingArcs() returns:
// [fsa][state][arc], with the idx012 of arcs.
void CheckIncomingArcs(FsaVec &fsas, Ragged<int32_t> &incoming_arcs);

// Checks that dest_states has the idx01 of a state for each arc.
void CheckDestStates(FsaVec &fsas, const Array1<int32_t> &dest_states);

// Checks that entering_arcs has for each state the idx012 of an arc, or -1.  If
// the FSAs are on the CPU, also checks that the arcs that lead back from the
// final state of each Fsa do not form a cycle.
void CheckEnteringArcs(FsaVec &fsas, const Array1<int32_t> &entering_arcs);

// Checks that `fsas` is an FsaVec, and that there is a score for each state.
void CheckStateScores(FsaVec &fsas, int32_t num_scores);

// Checks that `fsas` is an FsaVec, and that there is a score for each Fsa.
void CheckTotScores(FsaVec &fsas, int32_t num_scores);

}  // namespace k2

#endif  // K2_CSRC_CHECK_BATCHES_H_
