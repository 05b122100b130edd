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

/* The functions of scores take lists that k2 has made for the same FSAs, and
   that Python keeps for a while.  The lists of other FSAs would make k2 read
   and write other memory.

   Each function below throws std::invalid_argument, Python's ValueError, for a
   list with other sizes than the FSAs have.  It throws std::out_of_range,
   Python's IndexError, for an index that does not exist, where CheckIndexes()
   does so.  No function waits for a GPU. */

// Requires the sizes of what GetStateBatches() returns.  This function reads no
// index.
void CheckSizesOfBatches(FsaVec &fsas, Ragged<int32_t> &state_batches);

// Requires what GetStateBatches() returns: [batch][fsa][state], of idx01.
void CheckStateBatches(FsaVec &fsas, Ragged<int32_t> &state_batches);

// Requires also that each state occurs once, if the FSAs are on the CPU.
void CheckAllStates(FsaVec &fsas, Ragged<int32_t> &state_batches);

// Requires [batch][fsa][state][arc], of idx012, for `state_batches`, which this
// function checks too.
void CheckArcBatches(FsaVec &fsas, Ragged<int32_t> &state_batches,
                     Ragged<int32_t> &arc_batches);

// Requires what GetIncomingArcs() returns: [fsa][state][arc], of idx012.
void CheckIncomingArcs(FsaVec &fsas, Ragged<int32_t> &incoming_arcs);

// Requires a state for each arc, of idx01.
void CheckDestStates(FsaVec &fsas, const Array1<int32_t> &dest_states);

// Requires for each state the idx012 of an arc, or -1.  If the FSAs are on the
// CPU, the arcs that lead back from the final state of each Fsa must not form a
// cycle.
void CheckEnteringArcs(FsaVec &fsas, const Array1<int32_t> &entering_arcs);

// Requires an FsaVec, and a score for each state.
void CheckStateScores(FsaVec &fsas, int32_t num_scores);

// Requires an FsaVec, and a score for each Fsa.
void CheckTotScores(FsaVec &fsas, int32_t num_scores);

}  // namespace k2

#endif  // K2_CSRC_CHECK_BATCHES_H_
