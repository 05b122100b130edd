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

#ifndef K2_CSRC_MPS_KERNELS_PRUNED_DESCRIBE_H_
#define K2_CSRC_MPS_KERNELS_PRUNED_DESCRIBE_H_

#include "k2/csrc/mps/kernels/fsa_properties.h"
#include "k2/csrc/mps/kernels/pruned_memory.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// For kernels only: finds what the properties of a lattice depend on.

// The numbers to which DescribeArcs() adds its results.
struct Description {
  device atomic_int *lacks;    // bits of the properties that the arcs lack
  device atomic_int *entered;  // states that these arcs are the first to enter
  device atomic_int *left;     // states that the arcs leave
};

// Describes arcs `begin` to `end` - 1 of seq.out.  This thread processes arcs
// begin + first, begin + first + step, and so on.  All lanes of a simdgroup
// call this function.  In lane 0, `first` is a multiple of kSimdWidth.  From
// lane to lane, `first` grows by 1.  ends.IsFinal(arc) returns whether an arc
// enters the final state.
template <typename Ends>
inline void DescribeArcs(Sequence seq, Ends ends, int begin, int end, int first,
                         int step, Description to) {
  int lacks = 0, entered = 0, left = 0;
  for (int i = begin + first; i < end; i += step) {
    const OutArc arc = seq.out[i], before = seq.out[max(i - 1, 0)];  // NOLINT
    const int of_graph = seq.arcs[arc.graph_arc].label;
    const bool is_final = ends.IsFinal(arc);
    // Without allow_partial, the host refuses an arc that enters the final
    // state with a label other than -1.
    if (is_final && !seq.params->allow_partial && of_graph != -1)
      Fail(seq, kPrFinalArcs);
    // As unsigned numbers, label -1 is the largest.
    const uint last = 0xffffffffu, label = is_final ? last : uint(of_graph),
               label_before = ends.IsFinal(before)
                                  ? last
                                  : uint(seq.arcs[before.graph_arc].label);
    if (label == 0) lacks |= kLatticeEpsilonFree;
    if (i > 0 && before.src == arc.src) {
      if (label <= label_before) lacks |= kLatticeArcSortedAndDeterministic;
      if (label < label_before ||
          (label == label_before && arc.dest < before.dest))
        lacks |= kLatticeArcSorted;
    } else {
      left += 1;
    }
    if ((atomic_fetch_or_explicit(seq.entered + arc.dest, 1,
                                  memory_order_relaxed) &
         1) == 0)
      entered += 1;
  }
  atomic_fetch_or_explicit(to.lacks, simd_or(lacks), memory_order_relaxed);
  entered = simd_sum(entered);
  left = simd_sum(left);
  if (first % kSimdWidth != 0) return;
  atomic_fetch_add_explicit(to.entered, entered, memory_order_relaxed);
  atomic_fetch_add_explicit(to.left, left, memory_order_relaxed);
}

#endif  // K2_CSRC_MPS_KERNELS_PRUNED_DESCRIBE_H_
