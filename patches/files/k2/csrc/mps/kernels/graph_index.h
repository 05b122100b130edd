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

#ifndef K2_CSRC_MPS_KERNELS_GRAPH_INDEX_H_
#define K2_CSRC_MPS_KERNELS_GRAPH_INDEX_H_

// Shared by the host and the kernel of graph_index.metal.

// The arguments of the kernel.
enum GraphIndexBuffer {
  kGiArcs,
  kGiStateBegins,
  kGiLeavingBegins,
  kGiIncomingBegins,
  kGiIncoming,
  kGiByLabel,
  kGiFsaOfArc,
  kGiLabels,
  kGiEveryFsa,
  kGiParams,
};

// All members have the same size and alignment in C++ and in Metal.
struct GraphIndexParams {
  int num_fsas;
  int num_states;  // of all FSAs
  int num_arcs;    // of all FSAs
};

enum GraphIndexSizes {
  kGiMaxThreads = 1024,
};

#endif  // K2_CSRC_MPS_KERNELS_GRAPH_INDEX_H_
