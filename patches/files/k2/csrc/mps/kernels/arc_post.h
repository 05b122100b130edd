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

#ifndef K2_CSRC_MPS_KERNELS_ARC_POST_H_
#define K2_CSRC_MPS_KERNELS_ARC_POST_H_

// Shared by the host and the kernels of arc_post.metal.  All members have the
// same size and alignment in C++ and in Metal.
struct ArcPostParams {
  int num_fsas;
  int num_states;
  int num_arcs;
  int grad_stride;  // elements from one of tot_grad to the next
};

enum ArcPostSizes {
  kApSimdWidth = 32,
  kApMaxThreads = 1024,
  // A state with more arcs than this is summed by a simdgroup, not a thread.
  kApArcsOfThread = 32,
};

#endif  // K2_CSRC_MPS_KERNELS_ARC_POST_H_
