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

/* What intersect_dense has made on the GPU, and what it knows of it: where the
   states and arcs of each frame are.  A frame is what has been kept of the
   states of one FSA at one time, 0 to the number of rows of its sequence.

   What the functions return is encoded, nothing waits for it.
 */
struct Lattice {
  FsaVec fsas;
  Array1<int32_t> arc_map_a, arc_map_b;
  // Those of GetFsaVecBasicProperties(); -1 if they are not known.
  int32_t properties;

  // Each FSA has so many frames, those behind the end of its sequence without
  // states.
  int32_t num_steps;
  // [fsas.Dim0() * num_steps + 1], how many are before a frame.
  Array1<int32_t> frame_states, frame_arcs;

  Array1<int32_t> state_begins, leaving_begins;  // row splits of a_fsas
  Array1<int32_t> row_begins;                    // those of b_fsas
  Array1<int32_t> a_to_b_map;

  // What GetIncomingArcs() returns.
  Ragged<int32_t> IncomingArcs() const;

  // What GetStateBatches() returns; the batches are the frames' times.
  Ragged<int32_t> StateBatches() const;

  /* The gradients of the scores of a_fsas and of b_fsas from that of the
     lattice's: what adding up each element by arc_map_a and arc_map_b in the
     order of arcs would give, to the bit.

     @param [in] arc_grad   torch.float32 on mps, of fsas.NumElements()
     elements, contiguous.
     @param [out] grad      torch.float32 on mps, contiguous, in the shape of
                            the scores; all are written.
   */
  void GraphGrad(const at::Tensor &arc_grad, const at::Tensor &grad) const;
  void DenseGrad(const at::Tensor &arc_grad, const at::Tensor &grad) const;
};

}  // namespace k2

#endif  // K2_CSRC_MPS_LATTICE_H_
