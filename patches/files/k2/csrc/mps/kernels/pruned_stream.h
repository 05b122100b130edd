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

#ifndef K2_CSRC_MPS_KERNELS_PRUNED_STREAM_H_
#define K2_CSRC_MPS_KERNELS_PRUNED_STREAM_H_

#include "k2/csrc/mps/kernels/pruned.h"

// Shared by the host and the kernels of pruned_stream.metal.

// The arguments of load_stream, save_stream and emit_stream.  The other kernels
// have the arguments of pruned.h.
enum PrunedStreamBuffer {
  kStreamSaved,
  kStreamChunk,
  kStreamLeavingBegins,
  kStreamRings,
  kStreamLattice,
  kStreamScores,
  kStreamBBegins,
  kStreamInfos,
  kStreamParams,
  kStreamLoad,
  kStreamOldArcs,
  kStreamOldTimes,
  kStreamSave,
  kStreamArcs,
  kStreamRowSplits2,
  kStreamRowIds1,
  kStreamRowIds2,
  kStreamOutArcs,
  kStreamArcMap,
  kStreamEmit,
};

// All members of the structs have the same size and alignment in C++ and in
// Metal.
//
// Each call decodes a chunk of a stream's frames.  The pruning of a chunk can
// also change the last frames of the previous chunk, so these frames are saved.
// In the next chunk the saved frames are frames 0, 1 and 2.  The new chunk
// begins with the states of frame 2.  Near its beginning, a stream has fewer
// saved frames.
enum PrunedStreamSizes {
  kPrHistory = 2,             // saved frames before the chunk begins
  kPrSaved = kPrHistory + 1,  // all saved frames
};

// A chunk prunes frames `begin` to end - 1.  Frame `begin` is the first saved
// frame that exists.  Returns the first frame that the next chunk may change.
inline int PrunedChunkNext(int begin, int end) {
  return end - kPrHistory > begin ? end - kPrHistory : begin;
}
// Returns the number of steps that prune a chunk: one first step, one step for
// each frame, and the steps of DoNumberingStep() for each of two windows.  See
// DoPruningStep().  num_rows is PrunedParams::num_rows.
inline int PrunedChunkSteps(int num_rows) {
  return num_rows + 2 * kPrNumberingSteps;
}

// Where the parts of a saved stream begin, in elements of 4 bytes.  The stream
// has n states in kPrSaved frames, and m arcs that leave the first kPrHistory
// of these frames.  Its first part, `active`, begins at 0 and has 4 * n
// elements, see Active.
struct SavedLayout {
  long num_kept;     // [n], NOLINT
  long numbers;      // [n], the numbers of the states in the lattice, NOLINT
  long next_states;  // [m], NOLINT
  long scores;       // [kPrHistory][num_columns], NOLINT
  long size;         // of the stream, NOLINT
};

inline SavedLayout LayoutOfSaved(long n, long m, int num_columns) {  // NOLINT
  SavedLayout ans;
  ans.num_kept = 4 * n;
  ans.numbers = ans.num_kept + n;
  ans.next_states = ans.numbers + n;
  ans.scores = ans.next_states + m;
  ans.size = ans.scores + kPrHistory * num_columns;
  return ans;
}

// The parameters of load_stream, which puts a stream into the memory of a
// sequence.
struct PrunedLoad {
  int index;        // of the sequence
  int is_new;       // whether this is the stream's first chunk
  int num_rows;     // of the chunk
  int from_row;     // where the chunk begins among the rows of all chunks
  int to_row;       // where the sequence begins among the rows in memory
  int stride;       // distance between rows of all chunks, in elements
  int beam;         // the bits of the beam, which is a float
  int base;         // a state's number in the lattice minus its number here
  int first_frame;  // the first of the kPrSaved frames that exists
  int num_states[kPrSaved];  // of each saved frame
  int num_arcs[kPrSaved];    // of each saved frame
};

// The parameters of save_stream, which saves both a stream and the part of the
// stream's lattice that no later chunk changes.
struct PrunedSave {
  int index;                 // of the sequence
  int first_row;             // where its rows begin in memory
  int begin, next, end;      // the chunk's window, see FrozenWindow()
  int is_new;                // as in PrunedLoad
  int num_states, num_arcs;  // n and m of the saved stream
  int base;                  // as in PrunedLoad
  int time;                  // the frame of the stream that is frame 0 here
  int num_out_arcs;          // arcs that no later chunk changes
};

// The parameters of emit_stream, which writes the lattice of a stream.
struct PrunedStreamEmit {
  int index;                   // of the sequence
  int num_states, num_arcs;    // of the stream's lattice
  int num_old_arcs;            // arcs that earlier chunks saved
  int base;                    // as in PrunedLoad
  int first_state, first_arc;  // where the lattice begins among all lattices
};

#endif  // K2_CSRC_MPS_KERNELS_PRUNED_STREAM_H_
