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

#ifndef K2_CSRC_MPS_KERNELS_DENSE_FSA_VEC_H_
#define K2_CSRC_MPS_KERNELS_DENSE_FSA_VEC_H_

// Shared by the host and the kernels of dense_fsa_vec.metal.

// The arguments of the kernels.  Each kernel has some of these arguments.
enum DenseFsaVecBuffer {
  kDvLogProbs,
  kDvScores,
  kDvRowSplits,
  kDvParams,
  kDvScoresGrad,
  kDvGrad,
};

// All members of the structs have the same size and alignment in C++ and in
// Metal.
enum DenseFsaVecSizes {
  // The most segments of one dispatch, because Metal's setBytes takes at most
  // 4096 bytes.
  kDvMaxSegments = 240
};

struct DenseFsaVecParams {
  int num_segments;  // of this dispatch
  int first_segment;
  int num_symbols;
  int sequence_stride, frame_stride, symbol_stride;  // of log_probs
  // The row of the scores where each segment begins, and the row where the last
  // segment ends.
  int first_rows[kDvMaxSegments + 1];
  int sequences[kDvMaxSegments], start_frames[kDvMaxSegments];
};

struct DenseFsaVecGradParams {
  int num_segments;  // of this dispatch; segments are ordered by sequence
  int num_frames, num_symbols;
  int adds;  // whether to add to the result of an earlier dispatch
  int sequences[kDvMaxSegments], first_rows[kDvMaxSegments];
  int start_frames[kDvMaxSegments], end_frames[kDvMaxSegments];
};

#endif  // K2_CSRC_MPS_KERNELS_DENSE_FSA_VEC_H_
