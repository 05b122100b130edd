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

#ifndef K2_CSRC_GROUP_BY_LENGTH_H_
#define K2_CSRC_GROUP_BY_LENGTH_H_

#include <map>
#include <utility>
#include <vector>

#include "k2/csrc/array_ops.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/ragged_ops.h"

namespace k2 {

/* Decodes the sequences of a batch in groups.  All sequences of a group have
   the same length and the same history.

   @param [in] b_fsas   The sequences.
   @param [in] histories   For each sequence, a number that represents its
                           history.
   @param [in,out] states   For each sequence, the state that `decode` needs.
   @param [in] decode   Called as decode(b_fsas, &states, &ofsa, &arc_map_a) for
                        each group.  Writes the lattices of the group, and a map
                        from the lattices' arcs to the graph's arcs.
   @param [out] ofsa    The lattices, in the order of b_fsas.
   @param [out] arc_map_a   A map from the arcs of `ofsa` to the graph's arcs.
 */
template <typename State, typename Decode>
void DecodeByLength(DenseFsaVec &b_fsas, const std::vector<int32_t> &histories,
                    std::vector<State> *states, const Decode &decode,
                    FsaVec *ofsa, Array1<int32_t> *arc_map_a) {
  ContextPtr c = b_fsas.Context();
  Array1<int32_t> row_splits = b_fsas.shape.RowSplits(1).To(GetCpuContext());
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> seqs_by_length;
  for (int32_t i = 0; i + 1 < row_splits.Dim(); ++i)
    seqs_by_length[{row_splits[i + 1] - row_splits[i], histories[i]}].push_back(
        i);
  if (seqs_by_length.size() <= 1) {
    decode(b_fsas, states, ofsa, arc_map_a);
    return;
  }

  std::vector<FsaVec> lattices;
  std::vector<Array1<int32_t>> maps;
  // For each sequence, the index of its lattice in the concatenated `lattices`.
  std::vector<int32_t> places(states->size());
  int32_t place = 0;
  for (const auto &length_and_seqs : seqs_by_length) {
    const std::vector<int32_t> &seqs = length_and_seqs.second;
    std::vector<State> some_states;
    for (int32_t i : seqs) {
      some_states.push_back(states->at(i));
      places[i] = place++;
    }
    DenseFsaVec some_fsas = b_fsas[Array1<int32_t>(c, seqs)];
    lattices.emplace_back();
    maps.emplace_back();
    decode(some_fsas, &some_states, &lattices.back(), &maps.back());
  }
  int32_t num_lengths = static_cast<int32_t>(lattices.size());
  FsaVec all = Cat(0, num_lengths, lattices.data());
  Array1<int32_t> arcs;
  *ofsa = Index(all, 0, Array1<int32_t>(c, places), &arcs);
  *arc_map_a = Cat(c, num_lengths, maps.data())[arcs];
}

}  // namespace k2

#endif  // K2_CSRC_GROUP_BY_LENGTH_H_
