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

#ifndef K2_CSRC_MPS_KERNELS_PRUNED_H_
#define K2_CSRC_MPS_KERNELS_PRUNED_H_

#include "k2/csrc/mps/kernels/simd_width.h"

// Shared by the host and the kernels of pruned.metal.

// The arguments of the kernels of pruned.metal, and of the kernels of
// pruned_stream.metal that search or describe.  Each kernel has some of these
// arguments.
enum PrunedBuffer {
  kPrunedArcs,
  kPrunedStateBegins,
  kPrunedLeavingBegins,
  kPrunedBScores,
  kPrunedBBegins,
  // The memory of the sequences; see Sequence in pruned_memory.h.
  kPrunedTable,
  kPrunedRings,
  kPrunedLattice,
  kPrunedInfos,
  kPrunedParams,
  // PrunedStartParams, PrunedPart, PrunedStep or PrunedEmitParams.
  kPrunedDispatch,
  kPrunedBegins,
  kPrunedRowSplits2,
  kPrunedRowIds1,
  kPrunedRowIds2,
  kPrunedOutArcs,
  kPrunedArcMapA,
  kPrunedArcMapB,
  kPrunedFrameStates,
  kPrunedFrameArcs,
};

// All members have the same size and alignment in C++ and in Metal.
struct PrunedParams {
  int num_seqs;
  int at_once;       // sequences that have memory at the same time
  int num_rows;      // rows of b_scores that the longest sequence has
  int shared_graph;  // whether all sequences have the same graph, graph 0
  int num_states;    // of all graphs
  int stride;        // distance from a row of b_scores to the next, in elements
  int num_columns;   // of b_scores
  int min_active;
  int max_active;
  int allow_partial;
  float search_beam;
  float output_beam;
  // What the memory of a sequence has room for.
  int max_states;      // active states in the rings
  int max_arcs;        // arcs in the rings that leave these states
  int max_out_states;  // states of the lattice
  int max_out_arcs;    // arcs of the lattice
  int streaming;       // whether the rows are a chunk, see pruned_stream.h
};

struct PrunedStartParams {
  int num_pairs;  // pairs of numbers in the tables
  int num_infos;  // elements of `infos`
};

// The part of the work that a dispatch does.
struct PrunedPart {
  int first_seq;
  int first_window;
  int last_window;  // one past the last window
};

struct PrunedEmitParams {
  int num_seqs;
  int num_states;  // of the lattice
  int num_arcs;
};

// What a dispatch does if several threadgroups work on a sequence.
struct PrunedStep {
  int first_seq;
  int groups;       // threadgroups of a team
  int num_teams;    // teams of a sequence; see step_pruned()
  int phase;        // PrunedPhase
  int t;            // the frame of the phase
  int first_live;   // see MakeStates()
  int window;       // the window that is being pruned; -1 if there is none
  int window_step;  // see DoWindowStep()
};

// The steps of a frame.
enum PrunedPhase {
  kPrNoPhase = 0,
  kPrStart = 1,
  kPrExpand = 2,
  kPrInsert = 3,
  kPrFindFirsts = 4,
  kPrMakeStates = 5,
  // Only after the last frame.  For earlier frames, Resolve() runs in the
  // dispatch that does kPrExpand of the next frame.
  kPrResolve = 6,
};

enum PrunedSizes {
  // Threads of a threadgroup of step_pruned.  The number is small so that a
  // core has room for several threadgroups.
  kPrThreads = 128,
  // The most threads of a threadgroup, if one threadgroup works on a sequence.
  // A threadgroup has fewer threads if the GPU lacks registers.  The number is
  // large because threads wait for memory most of the time.
  kPrMostThreads = 1024,
  // The most simdgroups that work on a sequence.
  kPrMaxSimdgroups = 1024,
  // Kernels that fill memory or read lattices have kPrWideThreads threads in a
  // threadgroup.  Kernels that describe lattices have kPrWideGroups
  // threadgroups for each sequence.
  kPrWideThreads = 256,
  kPrWideGroups = 32,
  kPrAhead = 8,  // see VisitKept()
  // A thread processes this many arcs at once, so that the loads for these arcs
  // do not wait for each other.  If several threadgroups share a frame, the
  // number is smaller, because each thread has few arcs.
  kPrSearchUnroll = 4,
  kPrStepUnroll = 2,
  kPrNumberingSteps = 4,  // see DoNumberingStep()
  // See PrunedWindowBegin().
  kPrWindow = 30,
  kPrShift = 20,
};

// The frames of a window, kPrWindow at most, are pruned together.  Each window
// ends kPrShift frames after the previous window, or with the last frame, as in
// MultiGraphDenseIntersectPruned::Intersect().  Window `index` has the frames
// from PrunedWindowBegin() to PrunedWindowEnd() - 1.
inline int PrunedWindowBegin(int index) {
  const int begin = kPrShift * (index + 1) - kPrWindow;
  return begin > 0 ? begin : 0;
}
inline int PrunedWindowEnd(int index, int num_rows) {
  const int end = kPrShift * (index + 1);
  return end < num_rows ? end : num_rows;
}
inline int PrunedNumWindows(int num_rows) {
  return num_rows > 0 ? (num_rows - 1) / kPrShift + 1 : 1;
}
// Returns the number of steps that prune a window: one first step, one step for
// each frame, and the steps of DoNumberingStep().  See DoWindowStep().
inline int PrunedWindowSteps(int num_frames) {
  return 1 + num_frames + kPrNumberingSteps;
}

// The smallest beam with which the kernels compute.
inline float PrunedSmallestBeam() { return 1e-30f; }

// Returns the number of words that hold a bit for each of max_arcs arcs.
inline long PrunedWords(long max_arcs) {  // NOLINT
  return max_arcs / kSimdWidth + 1;
}
// Returns the size of one sequence's memory in `rings`, in elements of 4 bytes;
// see RingsOf() in pruned_memory.h.
inline long PrunedRingsSize(long max_states, long max_arcs,  // NOLINT
                            long num_rows) {                 // NOLINT
  const long size = 7 * max_states + 3 * max_arcs +          // NOLINT
                    2 * PrunedWords(max_arcs) + 4 * (num_rows + 2) +
                    4 * kPrMaxSimdgroups;
  return (size + 3) / 4 * 4;
}
// Returns the size of one sequence's memory in `lattice`, in elements of 4
// bytes; see GetSequence() in pruned_memory.h.
inline long PrunedLatticeSize(long max_states, long max_arcs) {  // NOLINT
  return (2 * max_states + 4 * max_arcs + 3) / 4 * 4;
}

// The indexes of a sequence's numbers in `infos`.
enum PrunedInfo {
  kPrBest = 0,      // [2], the best score of an arc in even and in odd frames
  kPrBeam = 2,      // [2], the bits of the beam of even and of odd frames
  kPrHasFinal = 4,  // whether an arc with label -1 leaves the last frame
  kPrError = 5,     // PrunedErrors
  kPrStates = 6,    // states that the lattice has so far
  kPrArcs = 7,      // arcs that the lattice has so far
  kPrNotProperties = 8,  // bits of FsaBasicProperties that the lattice lacks
  kPrEntered = 9,        // states of the lattice that arcs enter
  kPrLeft = 10,          // states of the lattice that arcs leave
  // 1 if the lattice gets a final state that no arc enters.  This happens if
  // the graph has states but no path reaches a final state.
  kPrExtraStates = 11,
  // The following numbers are for chunks, see pruned_stream.h.
  kPrFirstFrame = 12,    // the first saved frame that exists
  kPrIsNew = 13,         // whether this is the first chunk of the stream
  kPrFrozenStates = 14,  // states of the lattice that no later chunk changes
  kPrFrozenArcs = 15,    // arcs of the lattice that no later chunk changes
  // For a chunk, kPrNotProperties, kPrEntered and kPrLeft describe only the
  // arcs that kPrFrozenArcs counts.  The following three numbers describe all
  // other arcs.
  kPrLiveNotProperties = 16,
  kPrLiveEntered = 17,
  kPrLiveLeft = 18,
  kPrFrameSizes = 19,  // [3][2], states and arcs of the last frames
  kPrNumInfos = 25
};

enum PrunedErrors {
  kPrSmallRings = 1,   // max_states or max_arcs is too small
  kPrSmallOutput = 2,  // max_out_states or max_out_arcs is too small
  // If one of the following errors occurs, the host computes the batch.  The
  // host's own checks raise an error if the input is wrong.
  kPrScores = 4,      // the best path's forward and backward scores differ
  kPrNan = 8,         // a score is NaN or infinity
  kPrBeamRange = 16,  // a beam is less than PrunedSmallestBeam(), or NaN
  kPrFinalArcs = 32,  // the last frame's arcs do not all enter one final state
};

#endif  // K2_CSRC_MPS_KERNELS_PRUNED_H_
