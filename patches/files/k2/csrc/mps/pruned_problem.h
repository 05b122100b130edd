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

#ifndef K2_CSRC_MPS_PRUNED_PROBLEM_H_
#define K2_CSRC_MPS_PRUNED_PROBLEM_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "k2/csrc/fsa.h"
#include "k2/csrc/mps/gpu_array.h"
#include "k2/csrc/mps/intersect_dense_pruned.h"
#include "k2/csrc/mps/kernels/pruned.h"
#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/ragged_ops.h"

namespace k2 {

inline int32_t NumGraphs(FsaOrVec &a_fsas) {
  return a_fsas.NumAxes() == 2 ? 1 : a_fsas.Dim0();
}

// Returns the most threads that a threadgroup may have if `groups` threadgroups
// share a sequence.
inline int64_t PrunedThreads(int32_t groups) {
  return groups == 1 ? kPrMostThreads : kPrThreads;
}

// Returns whether the kernels can compute with these arguments of
// intersect_dense_pruned, and the host's checks would not refuse them.
inline bool TakesOptions(const PrunedOptions &options) {
  return options.search_beam >= PrunedSmallestBeam() &&
         options.search_beam <= 1e30f && options.output_beam > 0 &&
         options.min_active >= 0 && options.max_active > options.min_active;
}

inline void SetOptions(const PrunedOptions &options, PrunedParams *params) {
  params->search_beam = options.search_beam;
  // MultiGraphDenseIntersectPruned does the same; a comment there says why.
  params->output_beam =
      std::min(options.output_beam, std::numeric_limits<float>::max());
  params->min_active = options.min_active;
  params->max_active = options.max_active;
  params->allow_partial = options.allow_partial;
}

// The size of a batch, as far as the host knows it without a wait.
struct PrunedProblem {
  int32_t num_seqs, num_rows;
  int64_t num_states, num_arcs;  // of all graphs
  bool shared_graph;
  // Estimates of how many states are active at a frame of a sequence, and how
  // many arcs leave these states.
  int64_t active, leaving;

  PrunedProblem(FsaOrVec &a_fsas, int32_t num_seqs, int32_t num_rows,
                int32_t max_active)
      : num_seqs(num_seqs),
        num_rows(num_rows),
        num_states(a_fsas.TotSize(a_fsas.NumAxes() - 2)),
        num_arcs(a_fsas.NumElements()),
        shared_graph(NumGraphs(a_fsas) == 1) {
    // Few graphs have more than twice the average number of states and arcs.
    // Decoding visits states with many arcs more often than other states, so an
    // active state has about 5 / 2 times the average number of arcs.
    constexpr int64_t kMostActive = 1 << 14;
    const int64_t of_graphs = shared_graph ? 1 : num_seqs,
                  states = std::min(num_states, 2 * num_states / of_graphs),
                  arcs = std::min(num_arcs, 2 * num_arcs / of_graphs);
    active = std::min({states, int64_t{max_active}, kMostActive});
    leaving = std::min(arcs, 5 * active * num_arcs / (2 * num_states) + 32);
  }

  // Returns how many rounds a threadgroup takes for a frame: 5 for the steps of
  // the frame, and one for each arc of a thread.  A round is estimated to take
  // up to 6 microseconds.
  int64_t RoundsOfFrame(int32_t groups) const {
    // A core of Apple's GPUs has registers for this many threads of
    // search_pruned.
    constexpr int64_t kThreadsOfOne = 384;
    return 5 + leaving / (groups == 1 ? kThreadsOfOne : kPrThreads * groups);
  }
  // Returns how many threadgroups work on each of `at_once` sequences: `asked`,
  // or if `asked` is 0, the number that should be fastest.  With several
  // threadgroups, each step needs a dispatch, and a dispatch costs about as
  // much as a round.  So one threadgroup is faster for small frames.  For
  // larger frames of a few sequences, it is best to take all arcs of a frame in
  // one round.  For more sequences, fewer threadgroups and more rounds are
  // better, because threadgroups wait for room in a core.
  int32_t Groups(int32_t asked, int64_t at_once) const {
    constexpr int64_t kFewestArcs = 3072, kFewestCores = 2, kMostOfCore = 6,
                      kMostThreads = int64_t{kPrMaxSimdgroups} * kSimdWidth,
                      kMost = kMostThreads / kPrThreads;
    if (asked > 0) return std::min<int64_t>(asked, kMost);
    const int64_t of_cores = mps::NumCores() / at_once;
    if (leaving < kFewestArcs || of_cores < kFewestCores) return 1;
    return std::min({kMostOfCore * of_cores,
                     leaving / kPrThreads / (at_once / 8 + 1) + 1, kMost});
  }
};

// The estimate of how many arcs of a frame stay in the lattice.  A lattice with
// more arcs is made again, with the memory that it needs.
constexpr int64_t kPrunedExpectedArcs = 500;

// The most memory that a batch or a chunk may take in addition to its results,
// in bytes.
constexpr int64_t kPrunedMaxBytes = int64_t{1} << 30;

// Why the host decodes although the GPU was estimated to be faster.
constexpr const char *kPrunedTooMuchMemory =
    "the GPU would need more than 1 GiB";
constexpr const char *kPrunedTooLargeLattice =
    "the lattice is too large for the GPU";
constexpr const char *kPrunedScores =
    "the scores are infinite, NaN or too large for the GPU";

// Returns `properties` without those that a lattice lacks because of its
// numbers of states and arcs.
//
// num_entered   the number of states that arcs enter
// num_left      the number of states that arcs leave
inline int32_t WithoutLacking(int32_t properties, int64_t num_states,
                              int64_t num_arcs, int64_t num_entered,
                              int64_t num_left) {
  if (num_arcs == 0) properties &= ~kFsaPropertiesNonempty;
  if (num_states == 0) return properties;
  // If there is an arc, the initial state counts as entered, and the final
  // state counts as left.
  const int64_t one = num_arcs != 0 ? 1 : 0;
  if (num_entered + one != num_states)
    properties &= ~kFsaPropertiesMaybeAccessible;
  if (num_left + one != num_states)
    properties &= ~kFsaPropertiesMaybeCoaccessible;
  return properties;
}

// The memory of a batch or a chunk.  kernels/pruned_memory.h describes the
// members.
struct PrunedMemory {
  torch::Tensor table, rings, lattice, infos;

  mps::Arguments Arguments() const {
    return {mps::Out(kPrunedTable, table), mps::Out(kPrunedRings, rings),
            mps::Out(kPrunedLattice, lattice), mps::Out(kPrunedInfos, infos)};
  }
};

// The numbers of states and arcs for which a sequence has memory; see
// PrunedParams.
struct PrunedRoom {
  int64_t max_states, max_arcs, max_out_states, max_out_arcs;

  int64_t BytesOfRings(int32_t num_rows) const {
    return 4 * PrunedRingsSize(max_states, max_arcs, num_rows);
  }
  int64_t BytesOfOutput() const {
    return 4 * PrunedLatticeSize(max_out_states, max_out_arcs);
  }

  void SetParams(PrunedParams *params) const {
    params->max_states = max_states;
    params->max_arcs = max_arcs;
    params->max_out_states = max_out_states;
    params->max_out_arcs = max_out_arcs;
  }

  // Returns memory for the rings of `num_rings` sequences, and for the output
  // of `num_seqs` sequences.
  PrunedMemory Allocate(const torch::Tensor &table, const torch::Tensor &infos,
                        int64_t num_rings, int64_t num_seqs,
                        int32_t num_rows) const {
    return {table, GpuTensor<int32_t>(num_rings * BytesOfRings(num_rows) / 4),
            GpuTensor<int32_t>(num_seqs * BytesOfOutput() / 4), infos};
  }
};

// Lattices whose states and arcs a kernel writes.
struct PrunedFsas {
  int32_t num_states, num_arcs;  // of all lattices
  torch::Tensor row_splits2, row_ids1, row_ids2, arcs;

  PrunedFsas(int32_t num_states, int32_t num_arcs)
      : num_states(num_states),
        num_arcs(num_arcs),
        row_splits2(GpuTensor<int32_t>(num_states + 1)),
        row_ids1(GpuTensor<int32_t>(num_states)),
        row_ids2(GpuTensor<int32_t>(num_arcs)),
        arcs(GpuTensor<int32_t>(4 * int64_t{num_arcs})) {}

  // Returns the lattices.  row_splits1 has the number of states before each
  // lattice.
  FsaVec ToFsaVec(Array1<int32_t> row_splits1) const {
    Array1<int32_t> ids1 = GpuArray<int32_t>(row_ids1, num_states),
                    splits2 = GpuArray<int32_t>(row_splits2, num_states + 1),
                    ids2 = GpuArray<int32_t>(row_ids2, num_arcs);
    return FsaVec(RaggedShape3(&row_splits1, &ids1, num_states, &splits2, &ids2,
                               num_arcs),
                  GpuArray<Arc>(arcs, num_arcs));
  }
};

}  // namespace k2

#endif  // K2_CSRC_MPS_PRUNED_PROBLEM_H_
