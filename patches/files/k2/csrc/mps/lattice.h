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

#ifndef K2_CSRC_MPS_LATTICE_H_
#define K2_CSRC_MPS_LATTICE_H_

#include "k2/csrc/array.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/ragged.h"

namespace at {
class Tensor;
}

namespace k2 {

/* A lattice that the GPU has made, and the positions of each frame's states and
   arcs.  A frame is the set of kept states of one FSA at one time.  Times go
   from 0 to the number of rows of the FSA's sequence.

   The functions encode kernels, and do not wait.
 */
struct FramedLattice {
  FsaVec fsas;
  Array1<int32_t> arc_map_a, arc_map_b;
  // What GetFsaVecBasicProperties() would return; -1 if the kernels do not know
  // the properties.
  int32_t properties;

  // The number of frames of each FSA.  Frames after the end of an FSA's
  // sequence have no states.
  int32_t num_steps;
  // [fsas.Dim0() * num_steps + 1], the number of states, or of arcs, before
  // each frame.
  Array1<int32_t> frame_states, frame_arcs;

  // DenseGrad() reads row_begins, the row splits of b_fsas, and a_to_b_map,
  // [fsas.Dim0()], the sequence of each FSA.  a_to_b_map does not decrease.
  Array1<int32_t> row_begins, a_to_b_map;
  int32_t num_rows, num_columns;  // of the scores of b_fsas

  // Returns what GetIncomingArcs() would return.
  Ragged<int32_t> IncomingArcs() const;

  // Returns what GetStateBatches() would return.  The states of one time form a
  // batch.
  Ragged<int32_t> StateBatches() const;

  /* Computes the gradient of the scores of b_fsas.  The result is bit for bit
     that of a loop that visits the arcs of the lattice in order.  For arc i,
     the loop adds arc_grad[i] to element arc_map_b[i] of the gradient.

     @param [in] arc_grad   The gradient of the lattice's scores, torch.float32
                            on mps, [fsas.NumElements()], contiguous.
     @param [out] grad      torch.float32 on mps, contiguous, in the shape of
                            the scores; all elements are written.  Another shape
                            raises an error.
   */
  void DenseGrad(const at::Tensor &arc_grad, const at::Tensor &grad) const;
};

// A lattice that intersect_dense has made on the GPU.  The functions encode
// kernels, and do not wait.
struct Lattice : public FramedLattice {
  Array1<int32_t> state_begins, leaving_begins;  // row splits of a_fsas

  // As DenseGrad(), but computes the gradient of the scores of a_fsas, by
  // arc_map_a.
  void GraphGrad(const at::Tensor &arc_grad, const at::Tensor &grad) const;
};

}  // namespace k2

#endif  // K2_CSRC_MPS_LATTICE_H_
