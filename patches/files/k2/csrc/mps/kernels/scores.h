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

#ifndef K2_CSRC_MPS_KERNELS_SCORES_H_
#define K2_CSRC_MPS_KERNELS_SCORES_H_

// Shared by the host and the kernels of scores.metal.  All members have the
// same size and alignment in C++ and in Metal.
struct ScoresParams {
  int num_fsas;
  int num_batches;  // of states
  int num_arcs;
  int to_src;         // a state's arcs lead from other states, not to them
  int descending;     // begin with the last batch
  int log_semiring;   // else tropical
  int has_best_arcs;  // whether best_arcs is there
};

struct BestArcsParams {
  int num_states;
};

enum ScoresSizes {
  kScSimdWidth = 32,
  kScMaxThreads = 1024,
  // Arcs of a thread's first state that are loaded ahead.
  kScArcsAhead = 4,
};

#endif  // K2_CSRC_MPS_KERNELS_SCORES_H_
