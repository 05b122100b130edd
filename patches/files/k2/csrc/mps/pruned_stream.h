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
#include "k2/csrc/mps/intersect_dense_pruned.h"
#include "k2/csrc/mps/kernels/pruned_stream.h"
#include "torch/all.h"

namespace k2 {

// The part of a stream's lattice that no later chunk changes, on the GPU.
// Streams that continue from the same chunk share this memory.
struct PrunedHistory {
  torch::Tensor arcs;   // [room][4], see OutArc in kernels/pruned_memory.h
  torch::Tensor times;  // [room], the frame of each state
  int64_t num_arcs = 0, num_states = 0;  // how much of the room is in use
};

// What OnlineDenseIntersecter keeps of a stream between chunks, on the GPU.
// Each chunk makes a new PrunedStream, and does not change the previous one.
struct PrunedStream {
  int64_t num_frames = 0;
  int32_t num_columns = 0;  // of the scores
  float beam = 0;
  torch::Tensor saved;  // see kernels/pruned_stream.h
  int32_t num_states[kPrSaved] = {}, num_arcs[kPrSaved] = {};
  std::shared_ptr<PrunedHistory> history;
  // How many states and arcs of `history` belong to this stream.
  int64_t old_states = 0, old_arcs = 0;
  // What the first old_arcs arcs contribute to the properties of the lattice;
  // see kPrNotProperties, kPrEntered and kPrLeft in kernels/pruned.h.
  int32_t lacks = 0, entered = 0, left = 0;

  // Returns the index of the first saved frame.  The index is not 0 near the
  // beginning of a stream, when there are fewer than kPrSaved frames to save.
  int32_t FirstFrame() const {
    return num_frames < kPrHistory ? kPrHistory - num_frames : 0;
  }
};

// The lattices after a chunk.  Each lattice begins where its stream begins.
struct PrunedChunk {
  FsaVec fsas;
  Array1<int32_t> arc_map;
  int32_t properties;
  std::vector<std::shared_ptr<PrunedStream>> streams;
};

// OnlineDenseIntersecter on the GPU.  The lattices are bit for bit the CPU's
// lattices.
class PrunedStreams {
 public:
  /* @param [in] graph   The decoding graph on device mps, with 3 axes and
                         Dim0() == 1.
     The other arguments are those of OnlineDenseIntersecter.
   */
  PrunedStreams(FsaVec &graph, int32_t num_streams,
                const PrunedOptions &options)
      : graph_(graph), num_streams_(num_streams), options_(options) {}

  /* Decodes a chunk of each stream.  The host waits once.  If the estimated
     memory was not enough, the GPU starts again with more memory, and the host
     waits again.

     @param [in] b_fsas       Scores of frames, on device mps.
     @param [in] num_frames   The number of frames of each sequence of b_fsas.
     @param [in] streams      For each sequence, the stream that Decode()
                              returned for the previous chunk, or nullptr for a
                              new stream.
     @param [out] why_host, [in] groups   As for IntersectDensePrunedMps().
     @return   The lattices.  nullptr if the host has to do the work, for one of
               the reasons that IntersectDensePrunedMps() lists.
   */
  std::unique_ptr<PrunedChunk> Decode(
      DenseFsaVec &b_fsas, const std::vector<int32_t> &num_frames,
      const std::vector<std::shared_ptr<PrunedStream>> &streams,
      std::string *why_host, int32_t groups = 0);

  // Returns what OnlineDenseIntersecter would keep of the stream on the host.
  // Waits for the GPU.
  DecodeStateInfo ToHost(const PrunedStream &stream);

 private:
  struct Batch;
  // Describes a chunk.  Returns false if the host must decode it: if the host's
  // checks may refuse the chunk, or if the kernels cannot compute with the
  // beams.
  bool MakeBatch(DenseFsaVec &b_fsas, const std::vector<int32_t> &num_frames,
                 const std::vector<std::shared_ptr<PrunedStream>> &streams,
                 Batch *batch);
  // Sets batch->groups.  Returns false if the host is estimated to be faster.
  //
  // asked      the groups that the caller asks for, or 0
  // num_rows   the number of rows of all sequences
  // all_new    whether all streams begin with this chunk
  bool ChooseGroups(int32_t asked, int32_t num_rows, bool all_new,
                    Batch *batch);
  bool Fit(Batch *batch);
  void Allocate(Batch *batch);
  void Load(const Batch &batch, DenseFsaVec &b_fsas);
  void Search(const Batch &batch);
  // Gives the next attempt more memory, if `errors` say that there was too
  // little.
  void Enlarge(int32_t errors, const int32_t *infos, int32_t num_seqs);
  std::unique_ptr<PrunedChunk> Finish(const Batch &batch, const int32_t *infos,
                                      std::string *why_host);

  FsaVec graph_;
  int32_t num_streams_;
  PrunedOptions options_;
  std::mutex mutex_;
  torch::Tensor tables_;  // see PrunedMemory; has no entries between chunks
  int64_t rings_ = 1;     // multiplies the estimated memory of the rings
  int64_t out_arcs_ = 0;  // the fewest arcs to allocate for a chunk's lattice
};

}  // namespace k2

#endif  // K2_CSRC_MPS_PRUNED_STREAM_H_
