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

// Shared by the host and the kernels of mutual_information.metal.  All members
// have the same size and alignment in C++ and in Metal.
struct MutualInformationParams {
  int S;                // length of x
  int T;                // length of y
  int t_offset;         // 0, or -1 if px has shape [B][S][T] ("modified")
  int has_boundary;     // whether the boundary is to be read
  int num_sequences;    // B
  int scratch_columns;  // of what a pass hands to the next, 0 if there is one
  int scratch_stride;   // elements of scratch for each sequence
  // The slice that this dispatch does of each pass; a pass has num_sequences
  // threadgroups, and the rounds of pass i are i * delay behind.
  int first_pass;  // of the dispatch
  int begin;       // the first round, of pass 0
  int length;      // rounds
  int delay;
  int is_last;  // whether it is the last dispatch, and its only pass the last
};

// How the work is divided; mutual_information.metal says what the words mean.
// These are all the numbers that there are to tune.
enum MutualInformationTuning {
  kMiColumns = 8,    // of a tile
  kMiLayers = 2,     // rows that a lane computes
  kMiFetchers = 2,   // simdgroups that load, for each layer of a strip
  kMiDrainers = 1,   // simdgroups that store, for each layer of a strip
  kMiAhead = 2,      // rounds from fetching inputs to moving them into a tile
  kMiMaxStrips = 2,  // at once in a threadgroup
  kMiDelay = 2,      // steps after which a row's result is in the next row
  // What a dispatch costs more than its rounds, in rounds.
  kMiRoundsToStart = 12,
};

enum MutualInformationSizes {
  kMiSimdWidth = 32,
  kMiRows = kMiSimdWidth * kMiLayers,  // of a strip
  kMiSimdgroupsPerStrip = 1 + kMiLayers * (kMiFetchers + kMiDrainers),
  kMiThreadsPerStrip = kMiSimdgroupsPerStrip * kMiSimdWidth,
  kMiMaxThreads = kMiMaxStrips * kMiThreadsPerStrip,
  // Columns that the last row of a strip is behind its first row, at most.
  kMiMaxCarry = (kMiSimdWidth - 1) * (kMiDelay + kMiLayers - 1) + kMiLayers - 1,
  // Rounds that a strip is behind the strip above it, at most.
  kMiMaxLag = (kMiColumns - 1 + kMiMaxCarry) / kMiColumns + 1,
  // By how much scratch_columns must exceed T.
  kMiScratchMargin = kMiMaxCarry + 2 * kMiColumns,
  // Elements of scratch for what a slice of a strip leaves to the next one.
  kMiSavedSize = kMiSimdWidth * (2 * kMiLayers + 4),
};

#endif  // K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_H_
