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

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "k2/csrc/check_batches.h"
#include "k2/csrc/check_indexes.h"

namespace k2 {

static void RequireFsaVec(FsaVec &fsas) {
  if (fsas.NumAxes() != 3)
    throw std::invalid_argument("scores are computed for an FsaVec");
}

static void Require(bool ok, const char *name) {
  if (!ok)
    throw std::invalid_argument(std::string(name) +
                                " must be those of the same FSAs");
}

// Returns whether the host can read lists without a copy and without a wait for
// a GPU.
static bool IsOnHost(FsaVec &fsas) {
  return fsas.Context()->GetDeviceType() == kCpu;
}

// Returns whether a list is on the device of the FSAs.
template <typename T>
static bool IsNear(FsaVec &fsas, T &list) {
  return fsas.Context()->IsCompatible(*list.Context());
}

void CheckSizesOfBatches(FsaVec &fsas, Ragged<int32_t> &state_batches) {
  RequireFsaVec(fsas);
  Require(IsNear(fsas, state_batches) && state_batches.NumAxes() == 3 &&
              state_batches.TotSize(1) ==
                  fsas.Dim0() * state_batches.Dim0() &&
              state_batches.NumElements() == fsas.TotSize(1),
          "state_batches");
}

void CheckStateBatches(FsaVec &fsas, Ragged<int32_t> &state_batches) {
  CheckSizesOfBatches(fsas, state_batches);
  CheckIndexes(state_batches.values, fsas.TotSize(1), 0);
}

void CheckAllStates(FsaVec &fsas, Ragged<int32_t> &state_batches) {
  CheckStateBatches(fsas, state_batches);
  int32_t num_states = fsas.TotSize(1);
  if (num_states == 0 || !IsOnHost(fsas)) return;
  // There are as many elements as states.  So if each state occurs, no state
  // occurs twice.  A vector<bool> would take three times as long.
  std::vector<char> is_there(num_states);
  const int32_t *states = state_batches.values.Data();
  for (int32_t i = 0; i != num_states; ++i) is_there[states[i]] = 1;
  Require(std::memchr(is_there.data(), 0, num_states) == nullptr,
          "state_batches");
}

void CheckArcBatches(FsaVec &fsas, Ragged<int32_t> &state_batches,
                     Ragged<int32_t> &arc_batches) {
  CheckStateBatches(fsas, state_batches);
  Require(IsNear(fsas, arc_batches) && arc_batches.NumAxes() == 4 &&
              arc_batches.Dim0() == state_batches.Dim0() &&
              arc_batches.TotSize(1) == state_batches.TotSize(1) &&
              arc_batches.TotSize(2) == fsas.TotSize(1) &&
              arc_batches.NumElements() == fsas.NumElements(),
          "arc_batches");
  CheckIndexes(arc_batches.values, fsas.NumElements(), 0);
}

void CheckIncomingArcs(FsaVec &fsas, Ragged<int32_t> &incoming_arcs) {
  RequireFsaVec(fsas);
  Require(IsNear(fsas, incoming_arcs) && incoming_arcs.NumAxes() == 3 &&
              incoming_arcs.Dim0() == fsas.Dim0() &&
              incoming_arcs.TotSize(1) == fsas.TotSize(1) &&
              incoming_arcs.NumElements() == fsas.NumElements(),
          "incoming_arcs");
  CheckIndexes(incoming_arcs.values, fsas.NumElements(), 0);
}

void CheckDestStates(FsaVec &fsas, const Array1<int32_t> &dest_states) {
  RequireFsaVec(fsas);
  Require(IsNear(fsas, dest_states) &&
              dest_states.Dim() == fsas.NumElements(),
          "dest_states");
  CheckIndexes(dest_states, fsas.TotSize(1), 0);
}

void CheckEnteringArcs(FsaVec &fsas, const Array1<int32_t> &entering_arcs) {
  CheckStateScores(fsas, entering_arcs.Dim());
  Require(IsNear(fsas, entering_arcs), "entering_arcs");
  CheckIndexes(entering_arcs, fsas.NumElements(), -1);
  if (!IsOnHost(fsas)) return;
  const int32_t *begins = fsas.RowSplits(1).Data(),
                *entering = entering_arcs.Data();
  const Arc *arcs = fsas.values.Data();
  for (int32_t i = 0; i != fsas.Dim0(); ++i) {
    int32_t num_states = begins[i + 1] - begins[i], state = num_states - 1;
    for (int32_t length = 0; num_states != 0; ++length) {
      int32_t arc = entering[begins[i] + state];
      if (arc == -1) break;
      Require(length < num_states - 1 && arcs[arc].src_state < num_states,
              "entering_arcs");
      state = arcs[arc].src_state;
    }
  }
}

void CheckTotScores(FsaVec &fsas, int32_t num_scores) {
  RequireFsaVec(fsas);
  Require(num_scores == fsas.Dim0(), "the total scores");
}

void CheckStateScores(FsaVec &fsas, int32_t num_scores) {
  RequireFsaVec(fsas);
  Require(num_scores == fsas.TotSize(1), "the scores of states");
}

}  // namespace k2
