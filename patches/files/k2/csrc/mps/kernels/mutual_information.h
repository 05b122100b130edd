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

#ifndef K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_H_
#define K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_H_

// Shared by the host and the kernels of mutual_information.metal.

// The arguments of the kernels.  A kernel takes some of them.
enum MutualInformationBuffer {
  kMiPx,
  kMiPy,
  kMiBoundary,
  kMiP,
  kMiAns,
  kMiEdges,
  kMiParams,
  kMiAnsGrad,
  kMiPxGrad,
  kMiPyGrad,
};

// All members have the same size and alignment in C++ and in Metal.
struct MutualInformationParams {
  int S;             // length of x
  int T;             // length of y
  int t_offset;      // 0, or -1 if px has shape [B][S][T] ("modified")
  int has_boundary;  // whether the kernel reads `boundary`
  // The dispatch computes the rows from band * threads_per_threadgroup on, one
  // for each thread.
  int band;
};

enum MutualInformationSizes {
  kMiMaxRows = 256,    // of a band; two tiles of it fit into threadgroup memory
  kMiFewRows = 128,    // of a band, in instances with half that memory
  kMiRowsOfTile = 32,  // the lanes of a simdgroup
  kMiColumns = 8,      // of a tile; even
};

#endif  // K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_H_
