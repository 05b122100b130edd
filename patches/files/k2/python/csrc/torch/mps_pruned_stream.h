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

#ifndef K2_PYTHON_CSRC_TORCH_MPS_PRUNED_STREAM_H_
#define K2_PYTHON_CSRC_TORCH_MPS_PRUNED_STREAM_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "k2/csrc/intersect_dense_pruned.h"
#include "k2/csrc/mps/pruned_stream.h"
#include "k2/csrc/torch_util.h"
#include "k2/python/csrc/torch.h"

// Binds the functions that k2/python/k2/mps/streams.py calls.
inline void PybindMpsPrunedStream(py::module &m) {
#if K2_WITH_MPS
  using k2::PrunedChunk;
  using k2::PrunedStream;
  using k2::PrunedStreams;
  py::class_<PrunedStream, std::shared_ptr<PrunedStream>>(m, "MpsPrunedStream");

  py::class_<PrunedChunk> chunk(m, "MpsPrunedChunk");
  chunk.def_readonly("fsas", &PrunedChunk::fsas);
  chunk.def_readonly("properties", &PrunedChunk::properties);
  chunk.def_readonly("streams", &PrunedChunk::streams);
  chunk.def_property_readonly(
      "arc_map", [](PrunedChunk &self) { return k2::ToTorch(self.arc_map); });

  // The bound functions touch no Python object, so they release the GIL.
  py::class_<PrunedStreams> streams(m, "MpsPrunedStreams");
  streams.def(
      py::init([](k2::FsaVec &graph, int32_t num_streams, float search_beam,
                  float output_beam, int32_t min_active, int32_t max_active,
                  bool allow_partial) {
        return std::make_unique<PrunedStreams>(
            graph, num_streams,
            k2::PrunedOptions{search_beam, output_beam, min_active, max_active,
                              allow_partial});
      }),
      py::arg("graph"), py::arg("num_streams"), py::arg("search_beam"),
      py::arg("output_beam"), py::arg("min_active_states"),
      py::arg("max_active_states"), py::arg("allow_partial"));
  streams.def(
      "decode",
      [](PrunedStreams &self, k2::DenseFsaVec &b_fsas,
         const std::vector<int32_t> &num_frames,
         const std::vector<std::shared_ptr<PrunedStream>> &streams,
         int32_t groups) {
        std::string why_host;
        auto chunk =
            self.Decode(b_fsas, num_frames, streams, &why_host, groups);
        return std::make_pair(std::move(chunk), why_host);
      },
      py::arg("b_fsas"), py::arg("num_frames"), py::arg("streams"),
      py::arg("groups") = 0, py::call_guard<py::gil_scoped_release>());
  streams.def("to_host", &PrunedStreams::ToHost, py::arg("stream"),
              py::call_guard<py::gil_scoped_release>());
  m.def("mps_is_new_stream", [](const k2::DecodeStateInfo &state) {
    return state.states.NumAxes() == 1;
  });
#endif  // K2_WITH_MPS
}

#endif  // K2_PYTHON_CSRC_TORCH_MPS_PRUNED_STREAM_H_
