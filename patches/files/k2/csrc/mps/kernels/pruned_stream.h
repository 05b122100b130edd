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

// Shared by the host and the kernels of pruned_stream.metal.

// The arguments of load_stream, save_stream and emit_stream.  The other kernels
// have those of pruned.h.
enum PrunedStreamBuffer {
  kStreamSaved,
  kStreamChunk,
  kStreamLeavingBegins,
  kStreamActive,
  kStreamNumKept,
  kStreamNumbers,
  kStreamDests,
  kStreamScores,
  kStreamBBegins,
  kStreamFrames,
  kStreamInfos,
  kStreamLoad,
  kStreamOut,
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

// All members have the same size and alignment in C++ and in Metal.
// A stream has a chunk of frames for each call.  The next pruning changes the
// last frames of the chunk before, too.  The kernels count these frames first:
// frames 0 and 1, which arcs leave, and frame 2, with whose states the chunk
// begins.  A stream that begins has fewer such frames.
enum PrunedStreamSizes {
  kPrHistory = 2,
  kPrSaved = kPrHistory + 1,  // frames
};

// A saved stream has, for the n states of kPrSaved frames and the m arcs that
// leave the first kPrHistory ones:
//
//   active    [4 * n], see Active
//   num_kept  [n]
//   numbers   [n], of the lattice
//   dests     [m]
//   scores    [kPrHistory][num_columns], the rows of these frames

// Puts a stream into the memory of a sequence.
struct PrunedLoad {
  int index;     // of the sequence
  int is_new;    // whether this is the first chunk
  int num_rows;  // of the chunk
  int from_row;  // of the scores, the first one of the chunk
  int to_row;    // of the sequence's scores, the first one
  int stride;    // of the scores
  int num_columns;
  int beam;         // the bits of the float
  int base;         // the number of the lattice's state that is 0 here
  int first_frame;  // the first one that exists, of the kPrSaved ones
  int num_states[kPrSaved];
  int num_arcs[kPrSaved];
};

// Saves a stream, and its part of the lattice that no later chunk changes.
struct PrunedSave {
  int max_states, max_arcs;  // of the rings
  int begin, next, end;      // of the chunk's window
  int is_new;                // as above
  int num_states, num_arcs;  // n and m of the saved stream
  int base;                  // as above
  int time;                  // of the stream's frames, that of frame 0
  int num_out_arcs;          // that no later chunk changes
  int num_columns;
};

// Writes the lattice of a stream.
struct PrunedStreamEmit {
  int index;                   // of the sequence
  int num_states, num_arcs;    // of the stream's lattice
  int num_old_arcs;            // written by earlier chunks
  int base;                    // as above
  int first_state, first_arc;  // before the stream's
};

#endif  // K2_CSRC_MPS_KERNELS_PRUNED_STREAM_H_
