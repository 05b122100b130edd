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

// For kernels only: checkpoints, the passes that start from checkpoints, and
// the arguments of CTC's kernels.

// The first arguments of all kernels of CTC.
//
// arcs             [params.num_arcs], of all graphs
// state_begins     [params.num_fsas + 1], the row splits of axis 1
// leaving_begins   [params.num_states + 1], the row splits of axis 2
// incoming_begins  [params.num_states + 1], where the arcs that enter each
//                  state begin in `incoming`
// incoming         [params.num_arcs], indexes of the arcs, sorted by the states
//                  that they enter
// b_scores         [rows][params.stride]; the first params.num_columns elements
//                  of a row are read
// b_begins         [params.num_fsas + 1], the first row of each sequence
// penalized        [params.num_arcs], not 0 for arcs that get params.penalty;
//                  read if params.has_penalties
#define K2_CTC_INPUTS                                                   \
  device const Arc *arcs [[buffer(kCtcArcs)]],                          \
      device const int *state_begins [[buffer(kCtcStateBegins)]],       \
      device const int *leaving_begins [[buffer(kCtcLeavingBegins)]],   \
      device const int *incoming_begins [[buffer(kCtcIncomingBegins)]], \
      device const int *incoming [[buffer(kCtcIncoming)]],              \
      device const float *b_scores [[buffer(kCtcBScores)]],             \
      device const int *b_begins [[buffer(kCtcBBegins)]],               \
      device const uchar *penalized [[buffer(kCtcPenalized)]],          \
      constant CtcParams &params [[buffer(kCtcParams)]]

// The sums of all states in all rows would take most of the memory of a
// training step.  So ctc_best_scores and ctc_sums keep only the sums of every
// 8th or 16th row.  Such a row is a checkpoint.  The rows from one
// checkpoint to the next are a block.  A kernel that needs all rows has a
// threadgroup for each block.  This threadgroup computes the block again, with
// the same operations.

// Returns where the checkpoints of an FSA begin in the memory of all FSAs'
// checkpoints.  An FSA's backward checkpoints come first, then its forward
// checkpoints.  A checkpoint has the sums of the FSA's states in a row that
// is a multiple of `rows_of_block`, a power of 2.
inline int CheckpointsBegin(constant CtcParams &params, Fsa fsa,
                            int rows_of_block, bool forward) {
  return (2 * fsa.state_begin + (forward ? fsa.num_states : 0)) *
         (params.num_rows / rows_of_block + 1);
}

// Which rows of one FSA are checkpoints in one direction, and where these
// checkpoints are in memory.  `begin` is what CheckpointsBegin() returns.
struct Checkpoints {
  int begin, num_states, rows_of_block;

  bool Has(int row) const { return (row & (rows_of_block - 1)) == 0; }

  int Of(int row) const {
    // A shift takes less time than a division.
    return begin + (row >> metal::ctz(rows_of_block)) * num_states;
  }
};

// A visitor of Pass() that keeps the rounded sums of the states in rows
// begin, ..., end - 1.
template <typename Rows>
struct KeepRows {
  Rows rows;
  int begin, end, num_states;

  Rows At(int row) const { return rows + (row - begin) * num_states; }

  template <typename Sums>
  void Leave(int, Sums, Sums) const {}

  template <typename Sum>
  void Take(int row, int s, Sum sum) const {
    if (row >= begin && row < end) At(row)[s] = Rounded(sum);
  }
};

// The memory in which a threadgroup computes a block again.
template <typename Sums, typename Rows>
struct BlockMemory {
  Sums sums;     // [4][states], two rows for each direction
  Rows rows;     // [num_rows][states], rows of the forward pass
  int num_rows;  // at least the argument `needed` of WalkBlocks()
};

// Goes through blocks last, last - 1, ..., first of one FSA.
//
// The backward pass starts at the end of a block, and the visitor needs each
// row of this pass once.  The forward pass starts at the beginning of the
// block, and `memory` keeps the last rows of this pass.  If the block has
// more rows than fit into `memory`, the forward pass runs again for the
// earlier rows.
//
// needed    for one row of the backward pass, the visitor needs this many
//           rows of the forward pass, beginning with the same row
// visitor   the visitor of the backward pass; its member `forward` has rows
//           of the forward pass.  After the last step of the backward pass,
//           Finish() is called with the arguments of Leave().
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
                checkpoints +
                    CheckpointsBegin(params, fsa, rows_of_block, false) +
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
                  checkpoints +
                      CheckpointsBegin(params, fsa, rows_of_block, true) +
                      block * num_states,
                  begin, from_start, keep);
      Pass<Sum, 1>(params, input, forward, begin, keep.end - 1 - begin,
                   from_start, from_start + num_states, keep);
      visitor.forward = keep;
      Pass<Sum, 1>(params, input, backward, end, end - keep.begin, to_end, next,
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
