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

#include "k2/csrc/mps/kernels/dense_fsa_vec.h"

// Makes the scores of a DenseFsaVec from log-probs, and computes the gradient
// of the log-probs.
//
// The first column of the scores is for symbol -1.  Each segment has a row for
// each of its frames.  In these rows, symbol -1 has the score -infinity.  The
// segment's last row is for the final arc.  In this row, symbol -1 has the
// score 0 and all other symbols have the score -infinity.

using namespace metal;

// log_probs    [sequence][frame][symbol], with the strides of DenseFsaVecParams
// scores       [rows][num_symbols + 1]; the kernel writes the rows of this
//              dispatch's segments
// row_splits   [segments + 1], gets the rows where this dispatch's segments
//              begin, and the row where the last one ends
//
// There is a threadgroup for each row.
kernel void dense_fsa_vec(device const float *log_probs [[buffer(kDvLogProbs)]],
                          device float *scores [[buffer(kDvScores)]],
                          device int *row_splits [[buffer(kDvRowSplits)]],
                          constant DenseFsaVecParams &params
                          [[buffer(kDvParams)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint num_threads [[threads_per_threadgroup]]) {
  const int row = params.first_rows[0] + int(group);
  int low = 0, high = params.num_segments;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (params.first_rows[middle] <= row)
      low = middle;
    else
      high = middle;
  }
  const int frame = row - params.first_rows[low];
  const bool is_last = row + 1 == params.first_rows[low + 1];
  device const float *from =
      log_probs + long(params.sequences[low]) * params.sequence_stride +
      long(params.start_frames[low] + frame) * params.frame_stride;
  device float *to = scores + long(row) * (params.num_symbols + 1);
  for (int i = int(thread_index); i <= params.num_symbols;
       i += int(num_threads)) {
    const float final_score = i == 0 ? 0.0f : -INFINITY;
    to[i] = is_last  ? final_score
            : i == 0 ? -INFINITY
                     : from[long(i - 1) * params.symbol_stride];
  }
  if (thread_index == 0) {
    if (frame == 0) row_splits[params.first_segment + low] = row;
    if (is_last && low + 1 == params.num_segments)
      row_splits[params.first_segment + params.num_segments] = row + 1;
  }
}

// scores_grad   [rows][num_symbols + 1]
// grad          [sequences][num_frames][num_symbols]; all elements are written
//
// There is a threadgroup for each frame of each sequence.
kernel void dense_fsa_vec_grad(device const float *scores_grad
                               [[buffer(kDvScoresGrad)]],
                               device float *grad [[buffer(kDvGrad)]],
                               constant DenseFsaVecGradParams &params
                               [[buffer(kDvParams)]],
                               uint group [[threadgroup_position_in_grid]],
                               uint thread_index
                               [[thread_index_in_threadgroup]],
                               uint num_threads [[threads_per_threadgroup]]) {
  const int sequence = int(group) / params.num_frames,
            frame = int(group) % params.num_frames;
  // Finds the first segment of this sequence.  If this sequence has no segment,
  // finds the first segment of a later sequence.
  int first = 0, high = params.num_segments;
  while (first < high) {
    const int middle = (first + high) / 2;
    if (params.sequences[middle] < sequence)
      first = middle + 1;
    else
      high = middle;
  }
  device float *to = grad + long(group) * params.num_symbols;
  for (int i = int(thread_index); i < params.num_symbols;
       i += int(num_threads)) {
    float sum = params.adds ? to[i] : 0.0f;
    for (int k = first;
         k < params.num_segments && params.sequences[k] == sequence; ++k) {
      const int at = frame - params.start_frames[k];
      if (at >= 0 && frame < params.end_frames[k])
        sum += scores_grad[long(params.first_rows[k] + at) *
                               (params.num_symbols + 1) +
                           i + 1];
    }
    to[i] = sum;
  }
}
