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

#include <algorithm>
#include <atomic>
#include <future>  // NOLINT
#include <numeric>
#include <vector>

#include "k2/csrc/array_ops.h"
#include "k2/csrc/interrupt.h"
#include "k2/csrc/intersect_in_threads.h"
#include "k2/csrc/ragged_ops.h"
#include "k2/csrc/thread_pool.h"

namespace k2 {

namespace {

// The result for one sequence.  The maps contain indexes into the whole batch.
struct SequenceLattice {
  FsaVec fsas;
  Array1<int32_t> arc_map_a, arc_map_b;

  SequenceLattice(FsaVec &graph, int32_t first_arc, DenseFsaVec &sequence,
                  int32_t first_score, const IntersectSequence &intersect) {
    intersect(graph, sequence, &fsas, &arc_map_a, &arc_map_b);
    int32_t *map_a = arc_map_a.Data(), *map_b = arc_map_b.Data();
    for (int32_t i = 0; i < arc_map_a.Dim(); ++i) {
      if (map_a[i] >= 0) map_a[i] += first_arc;
      map_b[i] += first_score;
    }
  }
  SequenceLattice() = default;
};

}  // namespace

bool IntersectInThreads(FsaVec &a_fsas, DenseFsaVec &b_fsas,
                        int32_t num_threads, const IntersectSequence &intersect,
                        FsaVec *out, Array1<int32_t> *arc_map_a,
                        Array1<int32_t> *arc_map_b) {
  ContextPtr c = a_fsas.Context();
  const int32_t num_seqs = b_fsas.shape.Dim0();
  const bool shared_graph = a_fsas.Dim0() == 1;
  if (num_threads < 2 || num_seqs < 2 ||
      !(shared_graph || a_fsas.Dim0() == num_seqs) ||
      !c->IsCompatible(*b_fsas.Context()) || !c->SyncIfOnHost())
    return false;
  const int32_t *row_begins = b_fsas.shape.RowSplits(1).Data();
  auto num_rows = [=](int32_t i) { return row_begins[i + 1] - row_begins[i]; };
  for (int32_t i = 0; i < num_seqs; ++i)
    if (num_rows(i) == 0) return false;

  // Fills the caches of the shape now, because two threads must not fill the
  // caches at the same time.
  a_fsas.shape.Populate();
  const int32_t *state_begins = a_fsas.RowSplits(1).Data(),
                *arc_begins = a_fsas.RowSplits(2).Data();
  std::vector<SequenceLattice> lattices(num_seqs);
  auto intersect_one = [&](int32_t i) {
    FsaVec graph = shared_graph ? a_fsas : Arange(a_fsas, 0, i, i + 1);
    DenseFsaVec sequence(
        RegularRaggedShape(c, 1, num_rows(i)),
        b_fsas.scores.RowArange(row_begins[i], row_begins[i + 1]));
    lattices[i] = SequenceLattice(
        graph, shared_graph ? 0 : arc_begins[state_begins[i]], sequence,
        row_begins[i] * b_fsas.scores.Dim1(), intersect);
  };
  // The longest sequences come first, so that all threads end at about the same
  // time.
  std::vector<int32_t> order(num_seqs);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t i, int32_t j) {
    return num_rows(i) > num_rows(j);
  });
  {
    std::atomic<bool> stop{false};  // outlives the threads
    // k2's global pool is not used, because calls with one thread need the
    // threads of that pool to prune.
    ThreadPool pool(std::min(num_threads, num_seqs));
    std::vector<std::future<void>> done;
    for (int32_t i : order)
      done.push_back(pool.SubmitTask([&, i]() {
        StopWhen stop_when(stop);
        CheckInterrupt();
        intersect_one(i);
      }));
    WaitForTasks(&done, &stop);
  }

  std::vector<RaggedShape *> shapes;
  std::vector<const Array1<Arc> *> arcs;
  std::vector<const Array1<int32_t> *> maps_a, maps_b;
  for (SequenceLattice &lattice : lattices) {
    shapes.push_back(&lattice.fsas.shape);
    arcs.push_back(&lattice.fsas.values);
    maps_a.push_back(&lattice.arc_map_a);
    maps_b.push_back(&lattice.arc_map_b);
  }
  *out = FsaVec(Cat(0, num_seqs, shapes.data()), Cat(c, num_seqs, arcs.data()));
  *arc_map_a = Cat(c, num_seqs, maps_a.data());
  *arc_map_b = Cat(c, num_seqs, maps_b.data());
  return true;
}

}  // namespace k2
