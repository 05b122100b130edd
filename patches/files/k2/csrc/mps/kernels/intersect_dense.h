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

#ifndef K2_CSRC_MPS_KERNELS_INTERSECT_DENSE_H_
#define K2_CSRC_MPS_KERNELS_INTERSECT_DENSE_H_

// Shared by the host and the kernel of intersect_dense.metal.

// The arguments of the kernel.
enum IntersectDenseBuffer {
  kIdArcs,
  kIdStateBegins,
  kIdLeavingBegins,
  kIdIncomingBegins,
  kIdIncoming,
  kIdBScores,
  kIdBBegins,
  kIdAToBMap,
  kIdStateScores,
  kIdParams,
};

// All members have the same size and alignment in C++ and in Metal.
struct IntersectDenseParams {
  int stride;       // distance from a row of b_scores to the next, in elements
  int num_columns;  // of b_scores
  int num_states;   // of all graphs
  int width;        // lanes for each state: 1, 2, 4, 8, 16 or 32
  int first_row;    // first row of this dispatch; the backward pass counts rows
                    // from the end of a sequence
  int last_row;     // one past the last row of this dispatch
};

enum IntersectDenseSizes {
  kIdMaxThreads = 1024,
  // If an FSA has at most this many states, threadgroup memory keeps the scores
  // of two rows.
  kIdMaxCachedStates = 1024,
  // The number of arcs that a lane keeps in registers.
  kIdArcsOfLane = 4,
};

#endif  // K2_CSRC_MPS_KERNELS_INTERSECT_DENSE_H_
