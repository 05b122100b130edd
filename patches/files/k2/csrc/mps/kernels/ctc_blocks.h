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

#ifndef K2_CSRC_MPS_KERNELS_CTC_BLOCKS_H_
#define K2_CSRC_MPS_KERNELS_CTC_BLOCKS_H_

#include "k2/csrc/mps/kernels/ctc_pass.h"

// For kernels only: checkpoints, and the passes that start from them.
//
// What all states have at all times would be most of the memory of a step.  So
// ctc_best_scores and ctc_sums keep every 8th, 16th or 32nd time only, the
// checkpoints.  The rows from a checkpoint to the next are a block.  A kernel
// that needs all times has a threadgroup for each block, which computes the
// block again by the same operations.

// Returns where the checkpoints of an FSA begin, among those of all FSAs.  The
// backward checkpoints come first, then the forward ones.  A checkpoint is what
// the FSA's states have at a time that is a multiple of `rows_of_block`, a
// power of 2.
inline int RowsBegin(constant CtcParams &params, Fsa fsa, int rows_of_block,
                     bool forward) {
  return (2 * fsa.state_begin + (forward ? fsa.num_states : 0)) *
         (params.num_rows / rows_of_block + 1);
}

// A visitor of Pass() that keeps what the states have at times begin, ...,
// end - 1.
template <typename Rows>
struct KeepRows {
  Rows rows;
  int begin, end, num_states;

  Rows At(int time) const { return rows + (time - begin) * num_states; }

  template <typename Sums>
  void Leave(int, Sums, Sums) const {}

  template <typename Sum>
  void Take(int time, int s, Sum sum) const {
    if (time >= begin && time < end) At(time)[s] = Rounded(sum);
  }
};

// The memory in which a threadgroup computes a block again.
template <typename Sums, typename Rows>
struct BlockMemory {
  Sums sums;     // [4][states], two for each direction
  Rows rows;     // [num_rows][states], forward
  int num_rows;  // more than a visitor needs for one row
};

// Goes through blocks last, last - 1, ..., first of one FSA.
//
// The backward pass resumes at the block's end, and each of its rows is needed
// once.  The forward pass resumes at the block's begin, and the memory keeps
// its last rows.  If a block has more rows than the memory, the forward pass
// runs again for the rows before.
//
// needed    how many forward rows the visitor needs for one row: from that
// row's
//           time on
// visitor   visits the backward pass; its `forward` has the forward rows.
//           Finish() is called after the last step, with Leave()'s arguments.
template <typename Sum, typename Memory, typename Visitor>
METAL_FUNC void WalkBlocks(constant CtcParams &params, Input input,
                           Direction forward, Direction backward,
                           int rows_of_block, device const Sum *checkpoints,
                           int first, int last, int needed, Memory memory,
                           Visitor visitor) {
  const Fsa fsa = input.fsa;
  const int num_states = fsa.num_states;
  auto from_start = memory.sums, to_end = from_start + 2 * num_states,
       next = to_end + num_states;
  auto nothing = visitor.forward, keep = visitor.forward;
  nothing.end = 0;
  keep.num_states = num_states;
  int end = metal::min((last + 1) * rows_of_block, fsa.num_rows);
  if (end < fsa.num_rows) {
    Resume<Sum>(input,
                checkpoints + RowsBegin(params, fsa, rows_of_block, false) +
                    (last + 1) * num_states,
                end, to_end, nothing);
  } else {
    Begin<Sum>(input, num_states - 1, end, to_end, nothing);
  }
  for (int block = last; block >= first; --block) {
    const int begin = block * rows_of_block;
    while (end > begin) {
      // NOLINTNEXTLINE
      keep.begin = metal::max(begin, end - (memory.num_rows - needed + 1));
      keep.end = end - 1 + needed;
      Resume<Sum>(input,
                  checkpoints + RowsBegin(params, fsa, rows_of_block, true) +
                      block * num_states,
                  begin, from_start, keep);
      Pass<Sum>(params, input, forward, begin, keep.end - 1 - begin, from_start,
                from_start + num_states, keep);
      visitor.forward = keep;
      Pass<Sum>(params, input, backward, end, end - keep.begin, to_end, next,
                visitor);
      if ((end - keep.begin) % 2 != 0) {
        const auto last_sums = to_end;
        to_end = next;
        next = last_sums;
      }
      end = keep.begin;
      visitor.Finish(end, to_end, next);
    }
  }
}

#endif  // K2_CSRC_MPS_KERNELS_CTC_BLOCKS_H_
