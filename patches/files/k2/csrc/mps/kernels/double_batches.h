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

#ifndef K2_CSRC_MPS_KERNELS_DOUBLE_BATCHES_H_
#define K2_CSRC_MPS_KERNELS_DOUBLE_BATCHES_H_

#include "k2/csrc/mps/kernels/arc.h"
#include "k2/csrc/mps/kernels/double_scores.h"

// For kernels only: a threadgroup goes through the batches of states of one
// FSA.  Each state of a batch is a thread.  Or several threadgroups go through
// its arcs.

// The batches of states, and the FSA that a threadgroup works on.
struct Batches {
  device const int *begins;  // [num_batches * num_fsas + 1], into states
  device const int *states;  // [num_states], an idx01
  int num_fsas, num_batches, fsa;
  bool descending;
};

// An arc of a state, seen from that state.
struct IncidentArc {
  int state;  // at the other end, an idx01
  float score;
  int arc;  // its index
};

// The arcs that leave states.
struct LeavingArcs {
  device const Arc *arcs;
  device const int *begins;  // [num_states + 1], into arcs
};

inline int IndexOf(LeavingArcs, int position) { return position; }

inline IncidentArc Seen(LeavingArcs, Arc arc, int state, int index) {
  return IncidentArc{state - arc.src_state + arc.dest_state, arc.score, index};
}

// The arcs that enter states.
struct IncomingArcs {
  device const Arc *arcs;
  device const int *begins;  // [num_states + 1], into list
  device const int *list;    // [num_arcs], indexes of arcs
};

inline int IndexOf(IncomingArcs arcs, int position) {
  return arcs.list[position];
}

inline IncidentArc Seen(IncomingArcs, Arc arc, int state, int index) {
  return IncidentArc{state - arc.dest_state + arc.src_state, arc.score, index};
}

template <typename Arcs>
inline IncidentArc GetArc(Arcs arcs, int state, int position) {
  const int index = IndexOf(arcs, position);
  return Seen(arcs, arcs.arcs[index], state, index);
}

// A state, which has arcs begin..end - 1; none if it is negative.
struct Node {
  int state, begin, end;
};

// From a batch to a state's arcs are five loads, each of which needs the one
// before.  A thread takes one of them for each of the next five batches.  The
// functions compute nothing from what they load, so no load waits for another.
struct Range {
  int begin, end;
};

// A state, and the indexes of its first arcs; from `end` on there are none.
struct Indexes {
  Node node;
  int of_arcs[kDsArcsOfThread];
};

// A thread's work in a batch.
struct Work {
  Indexes indexes;
  Arc arcs[kDsArcsOfThread];
};

template <typename Arcs>
inline IncidentArc ArcOf(Arcs arcs, Work work, int i) {
  return Seen(arcs, work.arcs[i], work.indexes.node.state,
              work.indexes.of_arcs[i]);
}

inline Range LoadRange(Batches batches, int n) {
  if (n < 0 || n >= batches.num_batches) return Range{0, 0};
  const int batch = batches.descending ? batches.num_batches - 1 - n : n,
            place = batch * batches.num_fsas + batches.fsa;
  return Range{batches.begins[place], batches.begins[place + 1]};
}

inline int LoadState(Batches batches, Range range, int index) {
  return range.begin + index < range.end ? batches.states[range.begin + index]
                                         : -1;
}

template <typename Arcs>
inline Node LoadNode(Arcs arcs, int state) {
  if (state < 0) return Node{-1, 0, 0};
  return Node{state, arcs.begins[state], arcs.begins[state + 1]};
}

template <typename Arcs>
inline Indexes LoadIndexes(Arcs arcs, Node node) {
  Indexes ans;
  ans.node = node;
#pragma unroll
  for (int i = 0; i < kDsArcsOfThread; ++i) {
    const int position = node.begin + i;
    ans.of_arcs[i] = position < node.end ? IndexOf(arcs, position) : -1;
  }
  return ans;
}

template <typename Arcs>
inline Work LoadArcs(Arcs arcs, Indexes indexes) {
  const Arc none = {0, 0, 0, 0.0f};
  Work ans;
  ans.indexes = indexes;
#pragma unroll
  for (int i = 0; i < kDsArcsOfThread; ++i) {
    const int index = indexes.of_arcs[i];
    ans.arcs[i] = index >= 0 ? arcs.arcs[index] : none;
  }
  return ans;
}

// Calls visit(work) for the thread's states in batches first..last - 1, with a
// barrier after each batch.
template <typename Arcs, typename Visitor>
METAL_FUNC void ForEachState(Batches batches, Arcs arcs, int first, int last,
                             int thread_index, int num_threads,
                             Visitor visitor) {
  constexpr int kLoads = 5;
  Range range = {0, 0};
  int state = -1;
  Node node = {-1, 0, 0};
  Indexes indexes = LoadIndexes(arcs, node);
  Work next = LoadArcs(arcs, indexes);
  for (int n = first - kLoads; n < last; ++n) {
    Work work = next;
    next = LoadArcs(arcs, indexes);
    indexes = LoadIndexes(arcs, node);
    node = LoadNode(arcs, state);
    state = LoadState(batches, range, thread_index);
    range = LoadRange(batches, n + kLoads);
    if (n < first) continue;
    // In a batch of more states than threads, a thread has several.
    for (int index = thread_index; work.indexes.node.state >= 0;) {
      visitor.Visit(work);
      index += num_threads;
      work = LoadArcs(
          arcs,
          LoadIndexes(arcs,
                      LoadNode(arcs, LoadState(batches, LoadRange(batches, n),
                                               index))));
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_device);
  }
}

// A threadgroup's part of an FSA, where params.num_parts threadgroups work on
// each FSA.
struct Part {
  int fsa, begin, end;  // its states, none if begin == end
  int first, step;      // the first element of thread 0, and to the next one
};

inline Part GetPart(constant DoubleScoresParams &params,
                    device const int *state_begins, uint group,
                    uint num_threads) {
  const int fsa = int(group) / params.num_parts;
  return Part{fsa, state_begins[fsa], state_begins[fsa + 1],
              int(group) % params.num_parts * int(num_threads),
              params.num_parts * int(num_threads)};
}

#endif  // K2_CSRC_MPS_KERNELS_DOUBLE_BATCHES_H_
