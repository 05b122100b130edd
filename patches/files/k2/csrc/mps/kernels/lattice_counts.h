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

#ifndef K2_CSRC_MPS_KERNELS_LATTICE_COUNTS_H_
#define K2_CSRC_MPS_KERNELS_LATTICE_COUNTS_H_

#include "k2/csrc/mps/kernels/fsa_properties.h"
#include "k2/csrc/mps/kernels/lattice_frames.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// For kernels only: a simdgroup counts the states and arcs that intersect_dense
// keeps in a frame.

// Among the lanes before this lane, finds the last one whose bit is set in
// `bits`.  Returns the `value` of that lane, or `none` if there is no such
// lane.
inline int OfLaneBefore(int value, uint bits, int lane, int none) {
  const uint below = Below(bits, lane);
  const int before =
      metal::simd_shuffle(value, ushort(below == 0 ? lane : HighestBit(below)));
  return below == 0 ? none : before;
}

// Returns `value` of the last lane whose bit is set in `bits`.  `bits` must not
// be 0.
inline int OfLastLane(int value, uint bits) {
  return metal::simd_shuffle(value, ushort(HighestBit(bits)));
}

// The numbers of kept states and kept arcs of a frame.
struct Count {
  int states, arcs;
  int leaving_arcs;    // arcs of the graph that leave the kept states
  int not_properties;  // bits of the properties that the lattice lacks because
                       // of this frame
};

// Counts the kept states of a frame, and writes the frame's words.  In the
// result, leaving_arcs counts only the arcs that leave this lane's states; the
// other members are the same in all lanes.
inline Count CountStates(States states, Fsa fsa, device const int *arc_begins,
                         device uint2 *words, int lane) {
  Count count = {0, 0, 0, 0};
  const int num_words = (fsa.num_states + kSimdWidth - 1) / kSimdWidth;
  for (int word = 0; word < num_words; ++word) {
    const int s = word * kSimdWidth + lane;
    const bool kept = s < fsa.num_states && IsKept(states, s);
    if (kept) count.leaving_arcs += arc_begins[s + 1] - arc_begins[s];
    const uint bits = Ballot(kept);
    if (lane == 0) words[word] = uint2(bits, static_cast<uint>(count.states));
    count.states += static_cast<int>(metal::popcount(bits));
  }
  return count;
}

// Returns the properties that the lattice lacks because of the order of two
// successive arcs that leave the same state.
inline int BrokenOrder(int label_before, int dest_before, int label, int dest) {
  // As unsigned numbers, label -1 is the largest.
  const uint before = static_cast<uint>(label_before),
             order = static_cast<uint>(label);
  int broken = order <= before ? kLatticeArcSortedAndDeterministic : 0;
  if (order < before || (order == before && dest < dest_before))
    broken |= kLatticeArcSorted;
  return broken;
}

// Counts the kept arcs among arcs `begin` to end - 1 of the graph.  All these
// arcs leave a frame.  Returns the number of states that the kept arcs leave.
// In `count`, not_properties differs between lanes.
inline int CountLeavingArcs(Input in, Arcs leaving, int begin, int end,
                            int lane, thread Count &count) {
  int num_sources = 0, last_src = -1, last_dest = -1, last_label = -1;
  for (; begin < end; begin += kSimdWidth) {
    const int i = begin + lane;
    const Arc arc = in.arcs[i < end ? i : begin];
    const bool kept = i < end && IsKept(leaving, arc, i);
    const uint bits = Ballot(kept);
    const int label = ColumnOf(arc) - 1,
              src = OfLaneBefore(arc.src_state, bits, lane, last_src),
              dest = OfLaneBefore(arc.dest_state, bits, lane, last_dest),
              label_before = OfLaneBefore(label, bits, lane, last_label);
    const bool is_first = src != arc.src_state;
    num_sources += static_cast<int>(metal::popcount(Ballot(kept && is_first)));
    if (kept && label == 0) count.not_properties |= kLatticeEpsilonFree;
    if (kept && !is_first)
      count.not_properties |=
          BrokenOrder(label_before, dest, label, arc.dest_state);
    if (bits != 0) {
      last_src = OfLastLane(arc.src_state, bits);
      last_dest = OfLastLane(arc.dest_state, bits);
      last_label = OfLastLane(label, bits);
    }
    count.arcs += static_cast<int>(metal::popcount(bits));
  }
  return num_sources;
}

// Returns how many states of a frame the kept arcs enter.  The arcs that enter
// the frame are at positions `begin` to end - 1 of in.incoming, sorted by the
// states that they enter.
inline int CountEntered(Input in, Arcs incoming, int begin, int end, int lane) {
  int num_dests = 0, last_dest = -1;
  for (; begin < end; begin += kSimdWidth) {
    const int at = begin + lane, i = in.incoming[at < end ? at : begin];
    const Arc arc = in.arcs[i];
    const uint bits = Ballot(at < end && IsKept(incoming, arc, i));
    const int dest = OfLaneBefore(arc.dest_state, bits, lane, last_dest);
    num_dests += static_cast<int>(
        metal::popcount(bits & Ballot(dest != arc.dest_state)));
    if (bits != 0) last_dest = OfLastLane(arc.dest_state, bits);
  }
  return num_dests;
}

// Counts the kept arcs of a frame that has kept states, and finds the
// properties that the lattice lacks because of this frame.
inline void CountArcs(Input in, Fsa fsa, int t, float cutoff, int lane,
                      constant LatticeParams &params, thread Count &count) {
  const int last = fsa.num_states - 1;
  const bool has_start = IsKept(GetStates(in, fsa, 0, cutoff, params), 0),
             has_end = IsKept(GetStates(in, fsa, fsa.last_time, cutoff, params),
                              last);
  // The kernels can find the properties only if the initial state and the final
  // state are kept.
  if (!has_start || !has_end) count.not_properties |= kLtUnknown;

  int num_sources = 0, num_dests = 0;
  if (t < fsa.last_time) {
    device const int *begins = in.leaving_begins + fsa.first_state;
    num_sources =
        CountLeavingArcs(in, GetArcs(in, fsa, t, cutoff, params), begins[0],
                         begins[fsa.num_states], lane, count);
  }
  if (t > 0) {
    device const int *begins = in.incoming_begins + fsa.first_state;
    num_dests = CountEntered(in, GetArcs(in, fsa, t - 1, cutoff, params),
                             begins[0], begins[fsa.num_states], lane);
  }
  // The initial state counts as entered, and the final state counts as left.
  if (count.states != num_dests + (t == 0 && has_start ? 1 : 0))
    count.not_properties |= kLatticeMaybeAccessible;
  if (count.states != num_sources + (t == fsa.last_time && has_end ? 1 : 0))
    count.not_properties |= kLatticeMaybeCoaccessible;
}

#endif  // K2_CSRC_MPS_KERNELS_LATTICE_COUNTS_H_
