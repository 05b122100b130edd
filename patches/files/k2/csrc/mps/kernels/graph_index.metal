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

#include <metal_stdlib>

#include "k2/csrc/mps/kernels/arc.h"
#include "k2/csrc/mps/kernels/graph_index.h"

// Sorts the arcs of decoding graphs by destination and by label; see
// k2/csrc/mps/graph_index.h.

using namespace metal;

// An order of the arcs of one FSA.  Arcs are ordered by a key, which is the
// destination or the label.  Arcs with equal keys are in the order of the FSA.
struct Order {
  device const Arc *arcs;  // of all FSAs
  bool by_label;

  int KeyOf(int arc) const {
    return by_label ? arcs[arc].label : arcs[arc].dest_state;
  }

  bool IsBefore(int a, int b) const {
    const int key_a = KeyOf(a), key_b = KeyOf(b);
    return key_a < key_b || (key_a == key_b && a < b);
  }
};

// Sorts items with a fixed sequence of comparisons (K. Batcher, Sorting
// networks and their applications, 1968).  All merges are ascending, so the
// number of items need not be a power of 2: the missing items would be the
// largest ones at the end, and would never move.
inline void Sort(Order order, device int *items, int num_items,
                 int thread_index, int num_threads) {
  for (int size = 1; size < num_items; size *= 2) {
    // Merges pairs of sorted runs of `size` items.  The first step compares the
    // first item of a run with the last item of the next run, the second item
    // with the last item but one, and so on.
    for (int distance = size; distance > 0; distance /= 2) {
      for (int pair = thread_index;; pair += num_threads) {
        const int offset = pair % distance,
                  first = pair / distance * 2 * distance;
        if (first >= num_items) break;
        const int i = first + offset,
                  k = distance == size ? first + 2 * distance - 1 - offset
                                       : i + distance;
        if (k < num_items && order.IsBefore(items[k], items[i])) {
          const int item = items[i];
          items[i] = items[k];
          items[k] = item;
        }
      }
      threadgroup_barrier(mem_flags::mem_device);
    }
  }
}

// Returns how many arcs of `incoming` enter states before `state`.  `incoming`
// is sorted by destination.
inline int ArcsBefore(Order order, device const int *incoming, int num_arcs,
                      int state) {
  int begin = 0, end = num_arcs;
  while (begin < end) {
    const int middle = begin + (end - begin) / 2;
    if (order.KeyOf(incoming[middle]) < state)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

// arcs             [params.num_arcs]
// state_begins     [params.num_fsas + 1], the row splits of axis 1
// leaving_begins   [params.num_states + 1], the row splits of axis 2
// incoming_begins  [params.num_states + 1]
// incoming, by_label, fsa_of_arc   [params.num_arcs]
// labels           [params.num_fsas][2]
// every_fsa        [params.num_fsas]
//
// There are two threadgroups for each FSA, one for each order.
[[max_total_threads_per_threadgroup(kGiMaxThreads)]]
kernel void graph_index(device const Arc *arcs [[buffer(kGiArcs)]],
                        device const int *state_begins
                        [[buffer(kGiStateBegins)]],
                        device const int *leaving_begins
                        [[buffer(kGiLeavingBegins)]],
                        device int *incoming_begins
                        [[buffer(kGiIncomingBegins)]],
                        device int *incoming [[buffer(kGiIncoming)]],
                        device int *by_label [[buffer(kGiByLabel)]],
                        device int *fsa_of_arc [[buffer(kGiFsaOfArc)]],
                        device int *labels [[buffer(kGiLabels)]],
                        device int *every_fsa [[buffer(kGiEveryFsa)]],
                        constant GraphIndexParams &params [[buffer(kGiParams)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]],
                        uint num_threads [[threads_per_threadgroup]]) {
  const int fsa = int(group) / 2, me = int(thread_index),
            threads = int(num_threads), state_begin = state_begins[fsa],
            num_states = state_begins[fsa + 1] - state_begin,
            arc_begin = leaving_begins[state_begin],
            num_arcs = leaving_begins[state_begin + num_states] - arc_begin;
  const Order order = {arcs, group % 2 != 0};
  device int *sorted = (order.by_label ? by_label : incoming) + arc_begin;
  for (int i = me; i < num_arcs; i += threads) sorted[i] = arc_begin + i;
  threadgroup_barrier(mem_flags::mem_device);
  Sort(order, sorted, num_arcs, me, threads);

  if (!order.by_label) {
    for (int s = me; s < num_states; s += threads)
      incoming_begins[state_begin + s] =
          arc_begin + ArcsBefore(order, sorted, num_arcs, s);
    if (me == 0 && fsa == params.num_fsas - 1)
      incoming_begins[params.num_states] = params.num_arcs;
    return;
  }
  for (int i = me; i < num_arcs; i += threads) fsa_of_arc[arc_begin + i] = fsa;
  if (me == 0) {
    every_fsa[fsa] = fsa;
    labels[2 * fsa] = num_arcs > 0 ? order.KeyOf(sorted[0]) : -1;
    labels[2 * fsa + 1] = num_arcs > 0 ? order.KeyOf(sorted[num_arcs - 1]) : -1;
  }
}
