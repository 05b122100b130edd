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

#include "k2/csrc/mps/kernels/lattice.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/kernels/simdgroup.h"

// Computes the gradients of the graphs and of b_scores from the gradient of the
// lattice's arcs.  Each element of these gradients is a sum over arcs of the
// lattice.  The kernels add up the arcs in the lattice's order, so all runs
// give bit for bit the results of IndexAdd() on the CPU.  lattice.metal defines
// the word frame.

using namespace metal;

// Adds up the gradient of b_scores.  Each simdgroup processes one row of
// b_scores, 32 arcs at a time.  The arcs of a row are the arcs of one frame of
// each FSA of the row's sequence.  If the arcs of several lanes were made from
// the same element of b_scores, the first of these lanes writes the sum.
//
// arc_grad       [arcs of the lattice]
// arc_map_b      [arcs of the lattice], the element of b_scores from which each
//                arc was made
// frame_arcs     [num_fsas * num_steps + 1], where the arcs that leave each
//                frame begin
// row_begins     [num_sequences + 1], the row where each sequence begins
// a_to_b_map     [num_fsas], the sequence of each FSA; not decreasing
// grad           [num_rows][num_columns]; all elements are written
kernel void dense_grad(
    device const float *arc_grad [[buffer(kLatticeGradArcGrad)]],
    device const int *arc_map_b [[buffer(kLatticeGradArcMapB)]],
    device const int *frame_arcs [[buffer(kLatticeGradFrameArcs)]],
    device const int *row_begins [[buffer(kLatticeGradRowBegins)]],
    device const int *a_to_b_map [[buffer(kLatticeGradAToBMap)]],
    device float *grad [[buffer(kLatticeGradGrad)]],
    constant LatticeGradParams &params [[buffer(kLatticeGradParams)]],
    uint thread_index [[thread_position_in_grid]]) {
  const int row = int(thread_index) / kSimdWidth,
            lane = int(thread_index) % kSimdWidth;
  if (row >= params.num_rows) return;
  const int sequence = Find(row_begins, params.num_sequences, row),
            t = row - row_begins[sequence];
  const long first = long(row) * params.num_columns;
  for (int i = lane; i < params.num_columns; i += kSimdWidth)
    grad[first + i] = 0.0f;
  simdgroup_barrier(mem_flags::mem_device);
  // Finds the first FSA of this sequence.  If this sequence has no FSA, finds
  // the first FSA of a later sequence.
  int fsa = 0;
  for (int high = params.num_fsas; fsa < high;) {
    const int middle = (fsa + high) / 2;
    if (a_to_b_map[middle] < sequence)
      fsa = middle + 1;
    else
      high = middle;
  }
  for (; fsa < params.num_fsas && a_to_b_map[fsa] == sequence; ++fsa) {
    const int frame = fsa * params.num_steps + t, end = frame_arcs[frame + 1];
    for (int begin = frame_arcs[frame]; begin < end; begin += kSimdWidth) {
      const int i = begin + lane;
      const int at = i < end ? arc_map_b[i] : -1;
      const float own = i < end ? arc_grad[i] : 0.0f;
      float sum = i < end ? grad[at] : 0.0f;
      bool is_first = true;
      for (int j = 0; j < kSimdWidth; ++j) {
        const int other = simd_broadcast(at, ushort(j));
        const float term = simd_broadcast(own, ushort(j));
        if (other == at) {
          sum += term;
          if (j < lane) is_first = false;
        }
      }
      simdgroup_barrier(mem_flags::mem_device);
      if (i < end && is_first) grad[at] = sum;
      simdgroup_barrier(mem_flags::mem_device);
    }
  }
}

// Adds up the gradient of the graphs' scores.  Each thread processes one arc of
// the graphs.  In each frame, the thread finds, by a binary search, the
// lattice's arc that was made from this arc of the graphs.  A frame has at most
// one such arc, and the frame's arcs are in the order of the graph.
//
// arc_grad       [arcs of the lattice]
// arc_map_a      [arcs of the lattice], the graphs' arc from which each arc was
//                made
// frame_arcs     as for dense_grad
// state_begins   [num_fsas + 1], the row splits of axis 1 of the graphs
// leaving_begins   the row splits of axis 2 of the graphs
// grad           [num_graph_arcs]; all elements are written
kernel void graph_grad(
    device const float *arc_grad [[buffer(kLatticeGradArcGrad)]],
    device const int *arc_map_a [[buffer(kLatticeGradArcMapA)]],
    device const int *frame_arcs [[buffer(kLatticeGradFrameArcs)]],
    device const int *state_begins [[buffer(kLatticeGradStateBegins)]],
    device const int *leaving_begins [[buffer(kLatticeGradLeavingBegins)]],
    device float *grad [[buffer(kLatticeGradGrad)]],
    constant LatticeGradParams &params [[buffer(kLatticeGradParams)]],
    uint thread_index [[thread_position_in_grid]]) {
  const int arc = int(thread_index);
  if (arc >= params.num_graph_arcs) return;
  int fsa = 0;
  for (int high = params.num_fsas; high - fsa > 1;) {
    const int middle = (fsa + high) / 2;
    if (leaving_begins[state_begins[middle]] <= arc)
      fsa = middle;
    else
      high = middle;
  }
  float sum = 0.0f;
  for (int frame = fsa * params.num_steps; frame < (fsa + 1) * params.num_steps;
       ++frame) {
    const int begin = frame_arcs[frame], end = frame_arcs[frame + 1];
    if (begin == end || arc_map_a[begin] > arc) continue;
    const int at = begin + Find(arc_map_a + begin, end - begin, arc);
    if (arc_map_a[at] == arc) sum += arc_grad[at];
  }
  grad[arc] = sum;
}
