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

// Shared by the host and the kernels of pruned.metal.

// The arguments of the kernels, and of those of pruned_stream.metal that search
// or describe.  A kernel takes some of them.
enum PrunedBuffer {
  kPrunedArcs,
  kPrunedStateBegins,
  kPrunedLeavingBegins,
  kPrunedBScores,
  kPrunedBBegins,
  kPrunedTable,
  kPrunedActive,
  kPrunedBackward,
  kPrunedNumKept,
  kPrunedNumbers,
  kPrunedDests,
  kPrunedEndScores,
  kPrunedOverCutoff,
  kPrunedIsFirst,
  kPrunedCounts,
  kPrunedFrames,
  kPrunedInfos,
  kPrunedOut,
  kPrunedOutBegins,
  kPrunedEntered,
  kPrunedParams,
  kPrunedDispatch,  // PrunedStartParams, PrunedPart or PrunedStep
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
  int num_rows;      // of b_scores, of the longest sequence
  int shared_graph;  // whether all sequences have the graph number 0
  int num_states;    // of all graphs
  int stride;        // from a row of b_scores to the next
  int num_columns;   // of b_scores
  int min_active;
  int max_active;
  int allow_partial;
  float search_beam;
  float output_beam;
  // What a sequence has memory for.
  int max_states;      // active at the same time, in the frames of a window
  int max_arcs;        // that leave these states
  int max_words;       // bits for 32 arcs each, of one frame
  int max_out_states;  // of the lattice
  int max_out_arcs;
  int streaming;  // whether the rows are a chunk, see pruned_stream.h
};

struct PrunedStartParams {
  int num_pairs;  // of the tables
  int num_infos;
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
  int groups;      // threadgroups of a team
  int num_teams;   // for a sequence; see step_pruned()
  int phase;       // PrunedPhase
  int t;           // the frame of the phase
  int first_live;  // see MakeStates()
  int window;      // -1 if no window is being pruned
  int window_step;
};

// The steps of a frame.
enum PrunedPhase {
  kPrNoPhase = 0,
  kPrStart = 1,
  kPrExpand = 2,
  kPrInsert = 3,
  kPrFindFirsts = 4,
  kPrMakeStates = 5,
  kPrResolve = 6,  // after the last frame; else it goes beside kPrExpand
};

enum PrunedSizes {
  kPrSimdWidth = 32,
  // Of a threadgroup of step_pruned.  A core has room for several small ones.
  kPrThreads = 128,
  // Of a threadgroup that has a sequence to itself, where the GPU has registers
  // for so many: most of the time, threads wait for memory.
  kPrMostThreads = 1024,
  // The most simdgroups that work on a sequence.
  kPrMaxSimdgroups = 1024,
  // One dispatch fills memory or reads the lattice of each sequence with so
  // many threads.
  kPrWideThreads = 256,
  kPrWideGroups = 32,
  kPrAhead = 8,  // see VisitKept()
  // A thread goes through so many arcs at once: their loads do not wait for
  // each other.  Where several threadgroups share a frame, a thread has few.
  kPrSearchUnroll = 4,
  kPrStepUnroll = 2,
  // Pruning goes through kPrWindow frames at once, and begins a new window
  // kPrShift frames later; see MultiGraphDenseIntersectPruned::Intersect().
  kPrWindow = 30,
  kPrShift = 20,
};

// The places of a sequence's numbers in `infos`.
enum PrunedInfo {
  kPrBest = 0,      // [2], the best score of an arc, of frames t and t + 1
  kPrBeam = 2,      // [2], the bits of the beam
  kPrHasFinal = 4,  // whether an arc with label -1 leaves the last frame
  kPrError = 5,     // PrunedErrors
  kPrStates = 6,    // of the lattice, until now
  kPrArcs = 7,
  kPrNotProperties = 8,  // bits of FsaBasicProperties that the lattice lacks
  kPrEntered = 9,        // states of the lattice that arcs enter
  kPrLeft = 10,          // states of the lattice that arcs leave
  // A final state that no arc enters, if there is an initial state, but arcs
  // reach no final state.
  kPrExtraStates = 11,
  // Of chunks, see pruned_stream.h.
  kPrFirstFrame = 12,    // of the stream
  kPrIsNew = 13,         // whether no chunk came before
  kPrFrozenStates = 14,  // of the lattice, that no later chunk changes
  kPrFrozenArcs = 15,
  // As kPrNotProperties, kPrEntered and kPrLeft, of arcs that are not frozen.
  kPrLiveNotProperties = 16,
  kPrLiveEntered = 17,
  kPrLiveLeft = 18,
  kPrFrameSizes = 19,  // [3][2], states and arcs of the last frames
  kPrNumInfos = 25
};

enum PrunedErrors {
  kPrSmallRings = 1,   // max_states or max_arcs is too small
  kPrSmallOutput = 2,  // max_out_states or max_out_arcs is too small
  // For each of the following, the host does the batch; its own checks raise an
  // error if the input is wrong.
  kPrScores = 4,      // the best path's score differs forward and backward
  kPrNan = 8,         // a score is NaN or infinity
  kPrBeamRange = 16,  // a beam is not a normal number
  kPrFinalArcs = 32,  // the last frame's arcs do not all enter one final state
};

#endif  // K2_CSRC_MPS_KERNELS_PRUNED_H_
