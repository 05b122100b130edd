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

#ifndef K2_CSRC_NEXT_STATES_ON_CPU_H_
#define K2_CSRC_NEXT_STATES_ON_CPU_H_

#include <algorithm>
#include <limits>
#include <vector>

#include "k2/csrc/hash.h"
#include "k2/csrc/intersect_dense_pruned.h"
#include "k2/csrc/ragged_ops.h"
#include "k2/csrc/utils.h"

namespace intersect_pruned_internal {

/* Returns the largest end_loglike of each sequence's arcs, or -infinity for a
   sequence without arcs.  Arcs whose end_loglike is NaN are ignored.

     @param [in] arcs   The arcs of a frame, with 3 axes: sequence, state, arc.
     @return            An array with arcs.Dim0() elements.
 */
inline k2::Array1<float> BestScoresOnCpu(k2::Ragged<ArcInfo> &arcs) {
  const int32_t *row_splits1 = arcs.RowSplits(1).Data(),
                *row_splits2 = arcs.RowSplits(2).Data();
  const ArcInfo *arcs_data = arcs.values.Data();
  k2::Array1<float> ans(arcs.Context(), arcs.Dim0());
  // The device may still use the new array's memory.
  ans.Context()->SyncIfOnHost();
  for (int32_t i = 0; i < arcs.Dim0(); ++i) {
    const int32_t begin = row_splits2[row_splits1[i]],
                  end = row_splits2[row_splits1[i + 1]];
    // In one maximum, each comparison waits for the comparison before it.  A
    // core computes four independent maxima in the time of one.
    float best[4];
    std::fill(best, best + 4, -std::numeric_limits<float>::infinity());
    for (int32_t j = begin; j < end; ++j) {
      float &largest = best[j % 4];
      largest = std::max(largest, arcs_data[j].end_loglike);
    }
    ans.Data()[i] = *std::max_element(best, best + 4);
  }
  return ans;
}

/* Returns the states of the next frame, and makes the arcs of a frame point to
   these states.  This is a step of IntersectDensePruned() for one thread of the
   CPU.  The thread gives a state its number at the first arc into that state.
   The code for parallel threads needs four loops over the arcs and a prefix
   sum, and returns bit for bit the same states and arcs.

   A state is kept if an arc into the state has an end_loglike over the cutoff.
   The first such arc into a state determines the position of the state among
   the states of its sequence.

     @param [in,out] arcs    The arcs that leave the states of the frame, with
                             3 axes: sequence, state, arc.  On entry,
                             u.dest_a_fsas_state_idx01 is set.  On exit,
                             u.dest_info_state_idx1 is set: the index of the
                             destination among the returned states of the
                             sequence, or -1 if the destination is not kept.
     @param [in] cutoffs     The cutoff of each sequence.
     @param [in] state_map   An empty hash with a bucket for each arc.  The hash
                             is empty again on exit.
     @return   The states of the next frame, with 2 axes: sequence, state.
               backward_loglike is not set.  The row ids of the shape are set,
               because two threads use the shape: one prunes, and the other
               computes the next frame.
 */
template <int32_t NUM_KEY_BITS>
k2::Ragged<StateInfo> NextStatesOnCpu(
    k2::Ragged<ArcInfo> &arcs, const float *cutoffs,
    k2::Hash::Accessor<NUM_KEY_BITS> state_map) {
  k2::ContextPtr c = arcs.Context();
  const int32_t num_fsas = arcs.Dim0();
  const int32_t *row_splits1 = arcs.RowSplits(1).Data(),
                *row_splits2 = arcs.RowSplits(2).Data();
  ArcInfo *arcs_data = arcs.values.Data();

  std::vector<StateInfo> states;
  k2::Array1<int32_t> state_splits(c, num_fsas + 1);
  // The device may still use the new array's memory.
  c->SyncIfOnHost();
  int32_t *state_splits_data = state_splits.Data();
  state_splits_data[0] = 0;

  for (int32_t i = 0; i < num_fsas; ++i) {
    const int32_t begin = row_splits2[row_splits1[i]],
                  end = row_splits2[row_splits1[i + 1]];
    const int32_t first_state = state_splits_data[i];
    const float cutoff = cutoffs[i];

    auto enter = [&states](uint64_t state, float score) {
      int32_t &best = states[state].forward_loglike;
      best = std::max(best, k2::FloatToOrderedInt(score));
    };

    for (int32_t j = begin; j < end; ++j) {
      ArcInfo &arc = arcs_data[j];
      if (!(arc.end_loglike > cutoff)) continue;
      const int32_t dest = arc.u.dest_a_fsas_state_idx01;
      uint64_t state = states.size(), old_state;
      if (state_map.Insert(dest, state, &old_state)) {
        StateInfo info;
        info.a_fsas_state_idx01 = dest;
        info.forward_loglike =
            k2::FloatToOrderedInt(-std::numeric_limits<float>::infinity());
        states.push_back(info);
      } else {
        state = old_state;
      }
      arc.u.dest_info_state_idx1 = static_cast<int32_t>(state) - first_state;
      enter(state, arc.end_loglike);
    }

    // An arc at or below the cutoff may enter a state that another arc keeps.
    for (int32_t j = begin; j < end; ++j) {
      ArcInfo &arc = arcs_data[j];
      if (arc.end_loglike > cutoff) continue;
      uint64_t state;
      if (state_map.Find(arc.u.dest_a_fsas_state_idx01, &state)) {
        arc.u.dest_info_state_idx1 = static_cast<int32_t>(state) - first_state;
        enter(state, arc.end_loglike);
      } else {
        arc.u.dest_info_state_idx1 = -1;
      }
    }

    for (size_t state = first_state; state < states.size(); ++state)
      state_map.Delete(states[state].a_fsas_state_idx01);
    state_splits_data[i + 1] = static_cast<int32_t>(states.size());
  }

  k2::Array1<StateInfo> values(c, states);
  k2::Ragged<StateInfo> ans(
      k2::RaggedShape2(&state_splits, nullptr, values.Dim()), values);
  ans.RowIds(1);
  return ans;
}

}  // namespace intersect_pruned_internal

#endif  // K2_CSRC_NEXT_STATES_ON_CPU_H_
