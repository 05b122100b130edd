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

#ifndef K2_CSRC_STATE_SCORES_H_
#define K2_CSRC_STATE_SCORES_H_

#include <limits>
#include <stdexcept>

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/interrupt.h"
#include "k2/csrc/ragged.h"
#include "k2/csrc/utils.h"

namespace k2 {

/* Computes on the host what GetForwardScores() and GetBackwardScores() return.
   One loop goes through the states of all batches and allocates nothing.  For a
   small batch, an allocation would take longer than computing the scores.

   @param [in] forward        Whether to sum over entering arcs.
   @param [in] fsas           An FsaVec.
   @param [in] state_batches  [batch][fsa][state], with the idx01 of states.
   @param [in] arc_batches    [batch][fsa][state][arc], with the idx012 of arcs:
                              of entering arcs if forward, else of leaving arcs.
                              Throws std::invalid_argument if an arc leads
                              outside of the states.
   @param [in] log_semiring   true for the log semiring, false for the tropical
                              semiring.
   @param [in,out] scores     [fsas.TotSize(1)].  On entry, 0 for the states in
                              which the recursion begins, and -infinity for the
                              other states.
   @param [out] best_arcs     [fsas.TotSize(1)], gets the idx012 of the last one
                              of each state's best arcs, or -1.  May be nullptr,
                              and must be nullptr in the log semiring.
 */
template <typename T>
void StateScoresOnHost(bool forward, FsaVec &fsas,
                       Ragged<int32_t> &state_batches,
                       Ragged<int32_t> &arc_batches, bool log_semiring,
                       T *scores, int32_t *best_arcs) {
  const int32_t num_states = state_batches.NumElements(),
                *states = state_batches.values.Data(),
                *arc_begins = arc_batches.RowSplits(3).Data(),
                *list = arc_batches.values.Data();
  const Arc *arcs = fsas.values.Data();
  const T negative_infinity = -std::numeric_limits<T>::infinity();

  LongLoop loop;
  for (int32_t n = 0; n != num_states; ++n) {
    loop.Step();
    const int32_t at = forward ? n : num_states - 1 - n, state = states[at];
    T sum = negative_infinity;
    int32_t best = -1;
    for (int32_t i = arc_begins[at]; i != arc_begins[at + 1]; ++i) {
      const Arc &arc = arcs[list[i]];
      // Each FSA numbers its states from 0, so an arc does not tell the idx01
      // of its states, but it tells how far apart these states are.
      const int32_t length = arc.dest_state - arc.src_state,
                    other = forward ? state - length : state + length;
      if (other < 0 || other >= num_states)
        throw std::invalid_argument("arc_batches must be those of the FSAs");
      const T score = scores[other] + arc.score;
      if (log_semiring) {
        sum = LogAdd<T>()(score, sum);
      } else if (score > sum || (best_arcs != nullptr && score == sum)) {
        sum = score;
        best = list[i];
      }
    }
    if (best_arcs != nullptr) best_arcs[state] = best;
    if (sum != negative_infinity) scores[state] = sum;
  }
}

}  // namespace k2

#endif  // K2_CSRC_STATE_SCORES_H_
