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

#include "k2/csrc/mps/kernels/simd_width.h"

// Shared by the host and the kernels of mutual_information.metal.

// The arguments of the kernels.  Each kernel has some of these arguments.
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
  int S;             // number of symbols
  int T;             // number of frames
  int t_offset;      // 0, or -1 if px has shape [B][S][T] ("modified")
  int has_boundary;  // whether the kernel reads `boundary`
  // The index of the band.  The first row of the band is band *
  // threads_per_threadgroup.  The band has a row for each thread.
  int band;
};

enum MutualInformationSizes {
  kMiMaxRows = 256,  // most rows of a band; limited by threadgroup memory
  kMiFewRows = 128,  // most rows in instances with half as much memory
  // The rows of a tile: one for each lane of a simdgroup.
  kMiRowsOfTile = kSimdWidth,
  kMiColumns = 8,  // columns of a tile; must be even
};

#endif  // K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_H_
