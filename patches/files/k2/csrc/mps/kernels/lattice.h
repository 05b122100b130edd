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

#ifndef K2_CSRC_MPS_KERNELS_LATTICE_H_
#define K2_CSRC_MPS_KERNELS_LATTICE_H_

// Shared by the host and the kernels of lattice.metal, lattice_batches.metal
// and lattice_grad.metal.

// The arguments of the kernels of lattice.metal.  Each kernel has some of these
// arguments.
enum LatticeBuffer {
  kLatticeArcs,
  kLatticeStateBegins,
  kLatticeLeavingBegins,
  kLatticeIncomingBegins,
  kLatticeIncoming,
  kLatticeBScores,
  kLatticeBBegins,
  kLatticeAToBMap,
  kLatticeStateScores,
  kLatticeParams,
  kLatticeBestArcs,
  kLatticeWords,
  kLatticeCounts,
  kLatticeFrameStates,
  kLatticeFrameArcs,
  kLatticeTotals,
  kLatticeRowSplits1,
  kLatticeRowIds1,
  kLatticeRowSplits2,
  kLatticeRowIds2,
  kLatticeOut,
  kLatticeArcMapA,
  kLatticeArcMapB,
  kLatticePaths,
  kLatticeSteps,
};

// The arguments of the kernels of lattice_batches.metal.
enum BatchesBuffer {
  kBatchesArcs,
  kBatchesFrameStates,
  kBatchesFrameArcs,
  kBatchesNext,
  kBatchesRowSplits,
  kBatchesIncoming,
  kBatchesParams,
  kBatchesRowSplits1,
  kBatchesRowSplits2,
  kBatchesStates,
};

// The arguments of the kernels of lattice_grad.metal.
enum LatticeGradBuffer {
  kLatticeGradArcGrad,
  kLatticeGradArcMapB,
  kLatticeGradFrameArcs,
  kLatticeGradRowBegins,
  kLatticeGradAToBMap,
  kLatticeGradGrad,
  kLatticeGradParams,
  kLatticeGradArcMapA,
  kLatticeGradStateBegins,
  kLatticeGradLeavingBegins,
};

// All members have the same size and alignment in C++ and in Metal.
struct LatticeParams {
  int num_fsas;
  int num_states;   // of all FSAs
  int num_steps;    // times of the longest sequence: the number of rows, plus 1
  int num_words;    // words for one time; a word is for 32 states of an FSA
  int stride;       // distance from a row of b_scores to the next, in elements
  int num_columns;  // of b_scores
  float beam;       // -infinity keeps only the best paths
  int has_best_arcs;
};

struct BestPathsParams {
  int first_step;
  int last_step;  // one past the last step of this dispatch
};

struct BatchesParams {
  int num_fsas;
  int num_steps;  // times of the longest sequence; each time has a batch
  int num_states;
  int num_arcs;
};

struct LatticeGradParams {
  int num_fsas;
  int num_steps;
  int num_sequences;
  int num_rows;  // of b_scores
  int num_columns;
  int num_graph_arcs;
};

// The totals that the host reads before it allocates a lattice.
enum LatticeTotals {
  kLtStates = 0,
  kLtArcs = 1,
  kLtLeavingArcs = 2,    // arcs of the graph that leave kept states
  kLtNotProperties = 3,  // bits of FsaBasicProperties that the lattice lacks
  kLtMayCut = 4,         // whether rounding may prune an arc of a best path
  kLtDifference = 5,     // bits of the largest |forward total - backward total|
  kLtNumTotals = 6
};

// A bit of kLtNotProperties: the host must compute the properties itself.
enum LatticeFlags { kLtUnknown = 0x40000000 };

enum LatticeSizes {
  kLtMaxThreads = 1024,
  // The most threads of a threadgroup, in kernels with a simdgroup for each
  // frame or FSA.  With fewer threads, a GPU gives each thread more registers.
  kLtFrameThreads = 256,
};

#endif  // K2_CSRC_MPS_KERNELS_LATTICE_H_
