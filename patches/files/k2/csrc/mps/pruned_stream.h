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

#ifndef K2_CSRC_MPS_PRUNED_STREAM_H_
#define K2_CSRC_MPS_PRUNED_STREAM_H_

#include <memory>
#include <mutex>  // NOLINT
#include <string>
#include <vector>

#include "k2/csrc/fsa.h"
#include "k2/csrc/intersect_dense_pruned.h"
#include "k2/csrc/mps/kernels/pruned_stream.h"
#include "torch/all.h"

namespace k2 {

// The part of a stream's lattice that no later chunk changes, on the GPU.
// Streams that go on from the same chunk share its memory.
struct PrunedHistory {
  torch::Tensor arcs;   // [room][4], see OutArc in kernels/pruned_memory.h
  torch::Tensor times;  // [room], the frame of each state
  int64_t num_arcs = 0, num_states = 0;  // in use
};

// What OnlineDenseIntersecter keeps of a stream between chunks, on the GPU.
// Each chunk makes a new PrunedStream, and leaves the one before as it is.
struct PrunedStream {
  int64_t num_frames = 0;
  int32_t num_columns = 0;  // of the scores
  float beam = 0;
  torch::Tensor saved;  // see kernels/pruned_stream.h
  int32_t num_states[kPrSaved] = {}, num_arcs[kPrSaved] = {};
  std::shared_ptr<PrunedHistory> history;
  // Of `history`: what belongs to this stream, and the numbers for properties.
  int64_t old_states = 0, old_arcs = 0;
  int32_t lacks = 0, entered = 0, left = 0;

  // The first frame of the saved ones that exists.
  int32_t FirstFrame() const {
    return num_frames < kPrHistory ? kPrHistory - num_frames : 0;
  }
};

// The lattices after a chunk, from the beginnings of the streams on.
struct PrunedChunk {
  FsaVec fsas;
  Array1<int32_t> arc_map;
  int32_t properties;
  std::vector<std::shared_ptr<PrunedStream>> streams;
};

// OnlineDenseIntersecter on the GPU.  All bits are the CPU's.
class PrunedStreams {
 public:
  /* @param [in] graph   The decoding graph on device mps, with 3 axes and
                         Dim0() == 1.
     The others are as for OnlineDenseIntersecter.
   */
  PrunedStreams(FsaVec &graph, int32_t num_streams, float search_beam,
                float output_beam, int32_t min_active, int32_t max_active,
                bool allow_partial);

  /* Decodes a chunk of each stream.  The host waits once; if the memory that it
     estimated was not enough, once more each time that the GPU starts again.

     @param [in] b_fsas       Scores of frames, on device mps.
     @param [in] num_frames   The number of frames of each.
     @param [in] streams      What the last chunk of each stream returned;
                              nullptr: a new stream.
     @param [in] groups   How many threadgroups work on a sequence; 0: as many
                          as pay.  The result does not depend on it.
     @return   nullptr if the host has to do the work, as for
               IntersectDensePrunedMps().  WhyHostIntersectsPruned() tells
               why.
   */
  std::unique_ptr<PrunedChunk> Decode(
      DenseFsaVec &b_fsas, const std::vector<int32_t> &num_frames,
      const std::vector<std::shared_ptr<PrunedStream>> &streams,
      int32_t groups = 0);

  // Returns what OnlineDenseIntersecter would keep of the stream.  Waits.
  DecodeStateInfo ToHost(const PrunedStream &stream);

 private:
  struct Batch;
  bool Fit(Batch *batch);
  void Allocate(Batch *batch);
  void Load(const Batch &batch, DenseFsaVec &b_fsas);
  void Search(const Batch &batch);
  std::unique_ptr<PrunedChunk> Finish(const Batch &batch, const int32_t *infos);

  FsaVec graph_;
  int32_t num_streams_;
  float search_beam_, output_beam_;
  int32_t min_active_, max_active_;
  bool allow_partial_;
  std::mutex mutex_;
  torch::Tensor tables_;  // empty between chunks
  int64_t rings_ = 1;     // a factor of the estimated memory
  int64_t out_arcs_ = 0;  // of the lattice of a chunk, at least
};

}  // namespace k2

#endif  // K2_CSRC_MPS_PRUNED_STREAM_H_
