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

#ifndef K2_CSRC_MPS_KERNELS_CTC_H_
#define K2_CSRC_MPS_KERNELS_CTC_H_

// Shared by the host and the kernels of ctc_best.metal and ctc.metal.

// The arguments of the kernels.  Each kernel has some of these arguments.
enum CtcBuffer {
  kCtcArcs,
  kCtcStateBegins,
  kCtcLeavingBegins,
  kCtcIncomingBegins,
  kCtcIncoming,
  kCtcBScores,
  kCtcBBegins,
  kCtcPenalized,
  kCtcParams,
  kCtcBest,
  kCtcBestTotals,
  kCtcBestArcs,
  kCtcKept,
  kCtcLabels,
  kCtcByLabel,
  kCtcFsaOfArc,
  kCtcSums,
  kCtcTotals,
  kCtcScores,
  kCtcScoreGrads,
  kCtcAGrad,
  kCtcBGrad,
  kCtcScratch,
};

// All members have the same size and alignment in C++ and in Metal.
struct CtcParams {
  int num_fsas;     // number of decoding graphs, and of sequences
  int num_states;   // of all graphs
  int num_arcs;     // of all graphs
  int num_rows;     // of the longest sequence; the last row is for final arcs
  int num_words;    // words of 32 bits in a row of `kept`; see ctc_keep
  int stride;       // distance from a row of b_scores to the next, in elements
  int num_columns;  // of b_scores
  int width;        // lanes for each state: 1, 2, 4, 8, 16 or 32
  // The number of rows from one checkpoint to the next, a power of 2.  If the
  // number is 1, each row is a checkpoint.
  int rows_of_best_block;  // for the best scores
  int rows_of_block;       // for the sums
  int has_penalties;       // whether the kernels read `penalized`
  float penalty;           // see PenaltyAt() in ctc_pass.h
  float beam;
};

enum CtcSizes {
  // ctc_best_scores and ctc_sums keep the sums of two rows in threadgroup
  // memory if an FSA has at most this many states for each thread, and at most
  // kCtcMaxCachedStates states.
  kCtcCachedStatesOfThread = 2,
  kCtcMaxCachedStates = 960,
  // The number of arcs that a lane keeps in registers.
  kCtcArcsOfLane = 3,
  // The number of rows whose scores a lane of ctc_best_scores, or of ctc_sums
  // in single precision, loads at once.
  kCtcBestRowsAhead = 4,
  kCtcFloatRowsAhead = 2,
  // The most threads of a threadgroup in kernels other than ctc_best_scores and
  // ctc_sums.
  kCtcThreads = 128,
  // Floats of threadgroup memory for a block of best scores, or of sums.
  kCtcBestFloats = 3072,
  kCtcSumFloats = 6400,
  // If an FSA is too large for threadgroup memory, device memory has room for
  // this many rows of a block.
  kCtcScratchRows = 8,
};

#endif  // K2_CSRC_MPS_KERNELS_CTC_H_
