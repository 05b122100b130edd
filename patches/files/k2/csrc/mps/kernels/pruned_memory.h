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

#ifndef K2_CSRC_MPS_KERNELS_PRUNED_MEMORY_H_
#define K2_CSRC_MPS_KERNELS_PRUNED_MEMORY_H_

#include "k2/csrc/mps/kernels/arc.h"
#include "k2/csrc/mps/kernels/pruned.h"
#include "k2/csrc/mps/kernels/pruned_beam.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/kernels/simdgroup.h"

// For kernels only: the memory of intersect_dense_pruned, and how a team of
// simdgroups goes through the arcs of a frame.

// The buffers of a kernel that uses a Sequence.
struct Buffers {
  device const Arc *arcs;
  device const int *state_begins, *leaving_begins;
  device const float *b_scores;
  device const int *b_begins;
  device atomic_int *table;
  device int *rings, *lattice;
  device atomic_int *infos;
  constant PrunedParams *params;
};
// The arguments of a kernel that uses a Sequence, and the Buffers made of them.
#define K2_PRUNED_ARGUMENTS                                              \
  device const Arc *arcs [[buffer(kPrunedArcs)]],                        \
      device const int *state_begins [[buffer(kPrunedStateBegins)]],     \
      device const int *leaving_begins [[buffer(kPrunedLeavingBegins)]], \
      device const float *b_scores [[buffer(kPrunedBScores)]],           \
      device const int *b_begins [[buffer(kPrunedBBegins)]],             \
      device atomic_int *table [[buffer(kPrunedTable)]],                 \
      device int *rings [[buffer(kPrunedRings)]],                        \
      device int *lattice [[buffer(kPrunedLattice)]],                    \
      device atomic_int *infos [[buffer(kPrunedInfos)]],                 \
      constant PrunedParams &params [[buffer(kPrunedParams)]]
#define K2_PRUNED_BUFFERS                                                 \
  Buffers {                                                               \
    arcs, state_begins, leaving_begins, b_scores, b_begins, table, rings, \
        lattice, infos, &params                                           \
  }

// A state of the graph that is active at some frame.
struct alignas(16) Active {
  int state;      // its index among the states of all graphs
  int forward;    // Ordered() of its forward score
  int first_arc;  // its first arc's index among the arcs that leave the frame
  int graph_arc;  // its first arc's index among the arcs of all graphs
};

// Where a frame is in the rings: where its active states begin, and where the
// arcs that leave these states begin.  Also the numbers of states and arcs.
struct alignas(16) Frame {
  int first_state, num_states, first_arc, num_arcs;
};

// Where an arc of a frame ends.
struct alignas(8) Ending {
  int dest;     // the state of the graph that the arc enters
  float score;  // of the path that ends with the arc
};

// An arc of the lattice.
struct alignas(16) OutArc {
  int src, dest;  // states of the lattice of one sequence
  int graph_arc;  // the arc of the graph
  union {
    int t;        // the frame, in the lattice of a batch
    float score;  // the arc's score, in the lattice of a chunk
  };
};

constant int kNone = 0x7fffffff;

// The memory of one sequence.  A ring is a ring buffer: the element after its
// last element is its first element.
struct Sequence {
  constant PrunedParams *params;
  device const Arc *arcs;            // of all graphs
  device const int *leaving_begins;  // of all graphs
  int first_state, num_states;       // of the graph
  device const float *scores;        // from the sequence's first row on
  int num_rows;
  // A table has two numbers for each state of the graph: its Entry, and
  // Ordered() of the score of the best arc into the state.  Even and odd frames
  // have different tables.
  device atomic_int *even_table, *odd_table;
  // The ring of max_states active states.  `backward` is Ordered() of the
  // backward score.  num_kept is the number of leaving arcs that pruning kept,
  // -1 for a pruned state.  `numbers` has the number of the state in the
  // lattice.
  device Active *active;
  device int *backward, *num_kept, *numbers;
  // The ring of max_arcs arcs.  The steps from Expand() to Resolve() use
  // `endings`.  Resolve() finds next_states: the number of the entered state
  // among the states of the next frame, or -1 for a pruned arc.
  device Ending *endings;
  device int *next_states;
  // A bit for each arc of one frame.
  device uint *over_cutoff, *is_first;
  device int2 *counts;  // numbers of states and arcs, for each simdgroup
  device Frame *frames;
  device atomic_int *infos;
  device OutArc *out;
  device int *out_begins;  // each lattice state's first arc in `out`
  // For each state of the lattice, 2 * the state's frame, plus 1 if an arc
  // enters the state.
  device atomic_int *entered;
};

// In the table of a frame, the Entry of a graph's state has, one after another,
// these values:
//
//   kNone                 no arc over the cutoff enters the state
//   i >= 0                arc i of the frame is the first arc over the cutoff
//                         that enters the state; set by Insert()
//   EntryOfNumber(j) < 0  the state is state j of the next frame; set by
//                         MakeStates() in place of i
//
// ForgetStates() of the next frame sets kNone again.
inline int EntryOfNumber(int number) { return ~number; }
inline bool HasNumber(int entry) { return entry < 0; }
inline int NumberOf(int entry) { return ~entry; }

inline int Get(device const atomic_int *x) {
  return atomic_load_explicit(x, memory_order_relaxed);
}
inline void Set(device atomic_int *x, int value) {
  atomic_store_explicit(x, value, memory_order_relaxed);
}
inline void Fail(Sequence seq, int error) {
  atomic_fetch_or_explicit(seq.infos + kPrError, error, memory_order_relaxed);
}

inline device atomic_int *TableOf(Sequence seq, int t) {
  return (t & 1) == 0 ? seq.even_table : seq.odd_table;
}

// Returns where element `at` is in a ring of `size` elements.  `at` must be
// from 0 to 2 * size - 1.
inline int InRing(int at, int size) { return at < size ? at : at - size; }
inline int StateAt(Sequence seq, int at) {
  return InRing(at, seq.params->max_states);
}
inline int ArcAt(Sequence seq, int at) {
  return InRing(at, seq.params->max_arcs);
}

// Returns a Sequence that has only `params` and the rings at index `slot`.
inline Sequence RingsOf(device int *rings, int slot,
                        constant PrunedParams *params) {
  const long max_states = params->max_states,  // NOLINT
      max_arcs = params->max_arcs, num_frames = params->num_rows + 2L,
             max_words = PrunedWords(max_arcs);
  Sequence ans;
  ans.params = params;
  // Memory of elements with a larger alignment comes first.
  device int *at =
      rings + slot * PrunedRingsSize(max_states, max_arcs, params->num_rows);
  ans.active = reinterpret_cast<device Active *>(at);
  at += 4 * max_states;
  ans.frames = reinterpret_cast<device Frame *>(at);
  at += 4 * num_frames;
  // There are two arrays because DoPhase() and DoWindowStep() may run at the
  // same time.
  ans.counts = reinterpret_cast<device int2 *>(at);
  at += 4 * kPrMaxSimdgroups;
  ans.endings = reinterpret_cast<device Ending *>(at);
  at += 2 * max_arcs;
  ans.backward = at;
  at += max_states;
  ans.num_kept = at;
  at += max_states;
  ans.numbers = at;
  at += max_states;
  ans.next_states = at;
  at += max_arcs;
  ans.over_cutoff = reinterpret_cast<device uint *>(at);
  at += max_words;
  ans.is_first = reinterpret_cast<device uint *>(at);
  return ans;
}

// Returns where the lattice of sequence `index` begins in Buffers::lattice.
inline long LatticeBegin(int index, constant PrunedParams *params) {  // NOLINT
  return index *
         PrunedLatticeSize(params->max_out_states, params->max_out_arcs);
}

// Returns the memory of sequence `index`.  The sequence uses the rings at index
// `slot`.  If all sequences share a graph, it also uses the tables at this
// index.
inline Sequence GetSequence(Buffers buffers, int index, int slot) {
  constant PrunedParams *params = buffers.params;
  const long num_states = params->num_states,  // NOLINT
      all_states =
          params->shared_graph ? num_states * params->at_once : num_states;
  const int graph = params->shared_graph ? 0 : index;
  Sequence ans = RingsOf(buffers.rings, slot, params);
  ans.arcs = buffers.arcs;
  ans.leaving_begins = buffers.leaving_begins;
  ans.first_state = buffers.state_begins[graph];
  ans.num_states = buffers.state_begins[graph + 1] - ans.first_state;
  ans.scores = buffers.b_scores +
               long(buffers.b_begins[index]) * params->stride;  // NOLINT
  ans.num_rows = buffers.b_begins[index + 1] - buffers.b_begins[index];
  ans.even_table =
      buffers.table + (params->shared_graph ? 2 * num_states * slot : 0);
  ans.odd_table = ans.even_table + 2 * all_states;
  ans.infos = buffers.infos + index * kPrNumInfos;
  device int *at = buffers.lattice + LatticeBegin(index, params);
  ans.out = reinterpret_cast<device OutArc *>(at);
  at += 4L * params->max_out_arcs;
  ans.out_begins = at;
  at += params->max_out_states;
  ans.entered = reinterpret_cast<device atomic_int *>(at);
  return ans;
}

// A team consists of the simdgroups that work together on a sequence.  Before a
// simdgroup reads what another simdgroup wrote, there is a barrier, or a new
// dispatch begins.
struct Team {
  int index, size;  // the index of this simdgroup, the size of the team
  int lane;
  // Memory of this simdgroup, [2 * kSimdWidth] each.
  threadgroup atomic_int *sums;
  threadgroup int *queue;
  bool IsFirst() const { return index == 0 && lane == 0; }
};

// index, size, lane   as in Team
// simdgroup           the index of this simdgroup in its threadgroup
// sums, queues        the memory of all simdgroups of the threadgroup
inline Team TeamOf(int index, int size, int simdgroup, int lane,
                   threadgroup atomic_int *sums, threadgroup int *queues) {
  return Team{index, size, lane, sums + 2 * kSimdWidth * simdgroup,
              queues + 2 * kSimdWidth * simdgroup};
}

// The barrier between two steps of a team that is a whole threadgroup.
inline void Barrier() {
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
}

inline int Exclusive(int value) { return simd_prefix_exclusive_sum(value); }

// Returns the last lane with begin <= at.  `begin` must not decrease from lane
// to lane, and must not exceed `at` in lane 0.
inline int LaneOf(int begin, int at) {
  int lane = 0;
  for (int step = kSimdWidth / 2; step > 0; step /= 2) {
    const int other = simd_shuffle(begin, ushort(lane + step));
    if (other <= at) lane += step;
  }
  return lane;
}

// An arc that leaves a frame.
struct Step {
  bool exists;
  int index;      // its index among the frame's arcs
  int graph_arc;  // its index among the arcs of all graphs
  float forward;  // the forward score of the state that the arc leaves
  int lane;       // the lane whose state the arc leaves
};

// The states that a simdgroup works on at once.  Each lane has one state.
struct Sources {
  bool exists;  // whether this lane has a state
  int slot;     // where the state is in the ring
  Active state;
  int base, end;  // arcs `base` to end - 1 of the frame leave these states
  int begin;      // the first arc of this lane's state, counted from `base`
  int count;      // the number of states
};

// Returns up to `most` states of a frame, from state `first` on, and no state
// with first_arc >= limit.
inline Sources SourcesFrom(Sequence seq, Team team, Frame frame, int first,
                           int limit, int most) {
  const int j = first + team.lane, last = frame.num_states - 1;
  Sources ans;
  ans.slot = StateAt(seq, frame.first_state + min(j, last));  // NOLINT
  ans.state = seq.active[ans.slot];
  const int next =
      j < last ? seq.active[StateAt(seq, frame.first_state + j + 1)].first_arc
               : frame.num_arcs;
  ans.exists = team.lane < most && j <= last && ans.state.first_arc < limit;
  ans.count = static_cast<int>(popcount(Ballot(ans.exists)));
  ans.base = simd_shuffle(ans.state.first_arc, ushort(0));
  ans.end = min(simd_max(ans.exists ? next : 0), frame.num_arcs);  // NOLINT
  ans.begin = ans.exists ? ans.state.first_arc - ans.base : kNone;
  return ans;
}

// Returns the first state of a frame with first_arc >= at, or the number of
// states if there is no such state.
inline int FirstFrom(Sequence seq, Team team, Frame frame, int at) {
  int low = 0, high = frame.num_states;
  while (low < high) {
    const int step = (high - low + kSimdWidth - 1) / kSimdWidth,
              i = low + team.lane * step;
    const bool is_before =
        i < high &&
        seq.active[StateAt(seq, frame.first_state + i)].first_arc < at;
    const int count = static_cast<int>(popcount(Ballot(is_before)));
    if (count == 0) return low;
    high = min(high, low + count * step);  // NOLINT
    low += (count - 1) * step + 1;
  }
  return low;
}

inline Step StepOf(Sources sources, int i, bool exists) {
  const int lane = sources.count == 1 ? 0 : LaneOf(sources.begin, i);
  const int graph_arc =
      simd_shuffle(sources.state.graph_arc - sources.begin, ushort(lane));
  return Step{exists, sources.base + i, graph_arc + i,
              Unordered(simd_shuffle(sources.state.forward, ushort(lane))),
              lane};
}

// Visits the `total` arcs that leave the states of `sources`, 32 arcs at once.
template <typename Visitor>
inline void VisitAll(Team team, Sources sources, int total,
                     thread Visitor &visitor) {
  for (int offset = 0; offset < total; offset += kSimdWidth) {
    const int i = offset + team.lane;
    visitor.Visit(StepOf(sources, i, i < total));
  }
}

// Does what VisitAll() does, but leaves out pruned arcs.  Most arcs are pruned,
// so the kept arcs wait in a queue until the queue has 32 of them.  But if the
// queue is empty and at least 16 of 32 arcs are kept, these kept arcs are
// visited without waiting.  For a pruned arc, only its element of next_states
// is read.  The elements of 32 * kPrAhead arcs are loaded at once, so that the
// loads do not wait for each other.
template <typename Visitor>
inline void VisitKept(Sequence seq, Team team, Frame frame, Sources sources,
                      int total, thread Visitor &visitor) {
  int waiting = 0;
  // A bit for each of the kPrAhead arcs that this lane loads at once, 1 if the
  // arc is kept.
  uint kept = 0;
  for (int n = 0; n * kSimdWidth < total; ++n) {
    const int i = n * kSimdWidth + team.lane;
    if (n % kPrAhead == 0) {
      kept = 0;
      for (int k = 0; k < kPrAhead; ++k) {
        const int ahead = i + k * kSimdWidth, at = frame.first_arc +
                                                   sources.base +
                                                   (ahead < total ? ahead : 0);
        const int next_state = seq.next_states[ArcAt(seq, at)];
        kept |= (ahead < total && next_state >= 0 ? 1u : 0u) << k;
      }
    }
    const bool is_kept = (kept >> (n % kPrAhead) & 1u) != 0;
    const uint bits = Ballot(is_kept);
    if (bits == 0) continue;
    if (waiting == 0 && popcount(bits) >= kSimdWidth / 2) {
      simdgroup_barrier(mem_flags::mem_device);
      visitor.Visit(StepOf(sources, is_kept ? i : 0, is_kept));
      continue;
    }
    if (is_kept)
      team.queue[waiting + static_cast<int>(popcount(Below(bits, team.lane)))] =
          i;
    waiting += static_cast<int>(popcount(bits));
    // Visit() may write next_states, which other lanes have read.
    simdgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    if (waiting < kSimdWidth) continue;
    waiting -= kSimdWidth;
    const int next = team.queue[team.lane],
              later =
                  team.lane < waiting ? team.queue[kSimdWidth + team.lane] : 0;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (team.lane < waiting) team.queue[team.lane] = later;
    visitor.Visit(StepOf(sources, next, true));
  }
  if (waiting == 0) return;
  simdgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  const bool exists = team.lane < waiting;
  const int last = team.queue[exists ? team.lane : 0];
  visitor.Visit(StepOf(sources, last, exists));
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Goes through the states of a frame, up to 32 at once, and through the arcs
// that leave them, 32 at once.  Calls
//
//   visitor.Before(has_state, slot of the state in the ring, state)
//   visitor.Visit(step)     for each arc
//   visitor.After(has_state, slot of the state in the ring, state)
//
// in all lanes.  If kOnlyKept, leaves out pruned arcs.  Each simdgroup has a
// share of the frame's arcs, and works on the states whose first arc is in this
// share.  The states are not divided evenly, because some states have a hundred
// times as many arcs as others.
template <bool kOnlyKept, typename Visitor>
inline void ForArcs(Sequence seq, Team team, Frame frame,
                    thread Visitor &visitor) {
  if (frame.num_states == 0) return;
  // If there are at least as many simdgroups as states, each simdgroup works on
  // at most one state.
  const bool one_each = frame.num_states <= team.size;
  if (one_each && team.index >= frame.num_states) return;
  const int share = frame.num_arcs / team.size + 1;
  const bool is_last = one_each || team.index + 1 == team.size;
  const int limit = is_last ? kNone : (team.index + 1) * share;
  int first = team.index;
  if (!one_each)
    first = first == 0 ? 0 : FirstFrom(seq, team, frame, first * share);
  for (int count = kSimdWidth; count == kSimdWidth; first += count) {
    const Sources sources =
        SourcesFrom(seq, team, frame, first, limit, one_each ? 1 : kSimdWidth);
    count = sources.count;
    if (count == 0) return;
    visitor.Before(sources.exists, sources.slot, sources.state);
    const int total = sources.end - sources.base;
    if (kOnlyKept)
      VisitKept(seq, team, frame, sources, total, visitor);
    else
      VisitAll(team, sources, total, visitor);
    visitor.After(sources.exists, sources.slot, sources.state);
  }
}

// Returns whether all arcs of frame t enter the final state, although their
// labels are not -1.  The arcs of the last frame do so if allow_partial is set
// and none of them has label -1.
inline bool IsPartial(Sequence seq, int t) {
  return seq.params->allow_partial && t == seq.num_rows - 1 &&
         Get(seq.infos + kPrHasFinal) == 0;
}

// Returns the score of an arc of the graph at frame t.  The score is the arc's
// own score plus the element of b_scores for the arc's label.  If the label has
// no column in b_scores, -infinity takes the place of this element.  If
// is_partial, returns the arc's own score.
inline float ScoreOf(Sequence seq, int t, Arc arc, bool is_partial) {
  const long row = long(t) * seq.params->stride;  // NOLINT
  const uint column = uint(arc.label) + 1, last = seq.params->num_columns - 1;
  const float score = seq.scores[row + min(column, last)];  // NOLINT
  const float acoustic = is_partial ? 0.0f : column <= last ? score : -INFINITY;
  return acoustic + arc.score;
}

#endif  // K2_CSRC_MPS_KERNELS_PRUNED_MEMORY_H_
