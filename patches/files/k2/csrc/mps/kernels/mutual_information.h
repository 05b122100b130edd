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
//
// mutual_information_schedule.h says what strips, bands, chunks and rounds are.
struct MutualInformationParams {
  int S;                // length of x
  int T;                // length of y
  int t_offset;         // 0, or -1 if px has shape [B][S][T] ("modified")
  int has_boundary;     // whether the kernel reads `boundary`
  int num_sequences;    // B
  int scratch_columns;  // of the row that a band hands to the next band; 0 if
                        // there is one band
  int scratch_stride;   // elements of scratch for each sequence
  // A dispatch has num_sequences threadgroups for each band.  Band i does
  // `length` rounds from round begin - i * delay on.
  int begin;
  int length;
  int delay;
};

// How the work is divided.  All numbers to tune are here.
enum MutualInformationTuning {
  kMiColumns = 8,    // of a chunk
  kMiMovers = 2,     // simdgroups of a strip that load and store; even
  kMiMaxStrips = 4,  // of a band
  // The cost of starting a dispatch, in rounds.
  kMiRoundsToStart = 12,
};

enum MutualInformationSizes {
  kMiRows = 32,  // of a strip, one for each lane of a simdgroup
  kMiThreadsPerStrip = (1 + kMiMovers) * kMiRows,
  kMiMaxThreads = kMiMaxStrips * kMiThreadsPerStrip,
  // The most rounds that a strip is behind the strip above it.
  kMiMaxLag = (kMiColumns - 1 + kMiRows - 1) / kMiColumns + 1,
  // Elements of scratch in which a dispatch saves a strip for the next
  // dispatch.
  kMiSavedSize = 4 * kMiRows,
};

#endif  // K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_H_
