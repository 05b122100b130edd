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

#include "k2/csrc/mps/scores.h"

#include <limits>

#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/kernels/scores.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/placement.h"
#include "k2/csrc/torch_util.h"
#include "k2/csrc/utils.h"

namespace k2 {

namespace {

constexpr const char *kSource = "scores";

// Rough estimates in nanoseconds, for PreferMetal().  The host's are about
// 0.7 of what the scores, or their gradient, take on one core of an x86-64; the
// kernel's are several times those of an NVIDIA H200.  No Apple device was
// measured.
constexpr double kHostTimePerArcLog = 7.0;
constexpr double kHostTimePerArcTropical = 2.0;
constexpr double kHostTimePerArcBackprop = 10.0;
constexpr double kHostTimePerBatchBackprop = 2000.0;
constexpr double kMetalTimePerBatch = 4000.0;
constexpr double kMetalTime = 200000.0;  // the dispatches and the wait

// What the kernels read, apart from scores.
struct Inputs {
  ScoresParams params;
  torch::Tensor state_begins, batch_begins, states, arc_begins, list, links;
  uint32_t threads;
};

bool UseMetal(FsaVec &fsas, Ragged<int32_t> &state_batches,
              double host_time_per_arc, double host_time_per_batch) {
  const int32_t num_arcs = fsas.NumElements(),
                num_batches = state_batches.Dim0();
  return fsas.Context()->GetDeviceType() == kMps && num_arcs != 0 &&
         mps::PreferMetal(
             host_time_per_arc * num_arcs + host_time_per_batch * num_batches,
             kMetalTimePerBatch * num_batches + kMetalTime);
}

// The scores by the host.  The loop over all states does what upstream's code
// does for each batch, without what that allocates and asks for each of them,
// which takes longer than the states of a small batch do.
template <typename T>
void StateScoresHost(ScoresDirection direction, FsaVec &fsas,
                     Ragged<int32_t> &state_batches,
                     Ragged<int32_t> &arc_batches, bool log_semiring,
                     Array1<T> &scores, Array1<int32_t> *best_arcs) {
  fsas.Context()->Sync();
  const bool forward = direction == ScoresDirection::kForward;
  const int32_t num_states = state_batches.NumElements(),
                *states = state_batches.values.Data(),
                *arc_begins = arc_batches.RowSplits(3).Data(),
                *list = arc_batches.values.Data();
  const Arc *arcs = fsas.values.Data();
  T *scores_data = scores.Data();
  int32_t *best_data = best_arcs == nullptr ? nullptr : best_arcs->Data();
  const T minus_infinity = -std::numeric_limits<T>::infinity();

  for (int32_t n = 0; n != num_states; ++n) {
    const int32_t at = forward ? n : num_states - 1 - n, state = states[at];
    T sum = minus_infinity;
    int32_t best = -1;
    for (int32_t i = arc_begins[at]; i != arc_begins[at + 1]; ++i) {
      const Arc &arc = arcs[list[i]];
      const int32_t length = arc.dest_state - arc.src_state;
      const T score =
          scores_data[forward ? state - length : state + length] + arc.score;
      if (log_semiring) {
        sum = LogAdd<T>()(score, sum);
      } else if (score > sum || (best_data != nullptr && score == sum)) {
        sum = score;
        best = list[i];
      }
    }
    if (best_data != nullptr) best_data[state] = best;
    if (sum != minus_infinity) scores_data[state] = sum;
  }
}

// Encodes gather_arcs.
Inputs Gather(const char *kernel, FsaVec &fsas, Ragged<int32_t> &state_batches,
              Ragged<int32_t> &arc_batches, bool to_src, bool descending,
              bool log_semiring, bool has_best_arcs) {
  ContextPtr &c = fsas.Context();
  Array1<int32_t> state_begins = fsas.RowSplits(1), src_states = fsas.RowIds(2),
                  batch_begins = state_batches.RowSplits(2),
                  arc_begins = arc_batches.RowSplits(3),
                  links(c, 2 * fsas.NumElements());
  Inputs ans;
  ans.params = {fsas.Dim0(), state_batches.Dim0(), fsas.NumElements(), to_src,
                descending,  log_semiring,         has_best_arcs};
  ans.state_begins = ToTorch(state_begins);
  ans.batch_begins = ToTorch(batch_begins);
  ans.states = ToTorch(state_batches.values);
  ans.arc_begins = ToTorch(arc_begins);
  ans.list = ToTorch(arc_batches.values);
  ans.links = ToTorch(links);
  // Twice those of an FSA in an average batch, so that one pass is enough for
  // most.
  const int64_t num_parts = int64_t{fsas.Dim0()} * state_batches.Dim0();
  ans.threads = mps::FitThreads(
      kSource, kernel, ans.states,
      (2 * ans.states.numel() + num_parts - 1) / num_parts, kScSimdWidth);
  mps::Launch(kSource, "gather_arcs", mps::GridOf(fsas.NumElements()),
              {ToTorch(fsas.values), ToTorch(src_states), ans.list, ans.links,
               ans.params});
  return ans;
}

// Encodes best_leaving_arcs, into an array of scores.Dim() elements.
void BestLeavingArcs(FsaVec &fsas, Array1<float> &scores,
                     Array1<int32_t> &best) {
  Array1<int32_t> leaving_begins = fsas.RowSplits(2);
  mps::Launch(kSource, "best_leaving_arcs", mps::GridOf(scores.Dim()),
              {ToTorch(fsas.values), ToTorch(leaving_begins), ToTorch(scores),
               ToTorch(best), BestArcsParams{scores.Dim()}});
}

}  // namespace

bool StateScoresMps(ScoresDirection direction, FsaVec &fsas,
                    Ragged<int32_t> &state_batches,
                    Ragged<int32_t> &arc_batches, bool log_semiring,
                    Array1<float> &scores, Array1<int32_t> *best_arcs) {
  if (fsas.Context()->GetDeviceType() != kMps) return false;
  if (!UseMetal(fsas, state_batches,
                log_semiring ? kHostTimePerArcLog : kHostTimePerArcTropical,
                0.0)) {
    StateScoresHost(direction, fsas, state_batches, arc_batches, log_semiring,
                    scores, best_arcs);
    return true;
  }
  const char *kernel = "state_scores";
  const bool forward = direction == ScoresDirection::kForward;
  Inputs inputs = Gather(kernel, fsas, state_batches, arc_batches,
                         /*to_src*/ forward, /*descending*/ !forward,
                         log_semiring, best_arcs != nullptr);
  mps::Launch(kSource, kernel,
              {static_cast<uint32_t>(fsas.Dim0()), inputs.threads},
              {inputs.state_begins, inputs.batch_begins, inputs.states,
               inputs.arc_begins, inputs.list, inputs.links, ToTorch(scores),
               best_arcs ? ToTorch(*best_arcs) : inputs.states, inputs.params});
  return true;
}

bool StateScoresMps(ScoresDirection direction, FsaVec &fsas,
                    Ragged<int32_t> &state_batches,
                    Ragged<int32_t> &arc_batches, bool log_semiring,
                    Array1<double> &scores, Array1<int32_t> *best_arcs) {
  if (fsas.Context()->GetDeviceType() != kMps) return false;
  StateScoresHost(direction, fsas, state_batches, arc_batches, log_semiring,
                  scores, best_arcs);
  return true;
}

bool StateScoresBackpropMps(ScoresDirection direction, FsaVec &fsas,
                            Ragged<int32_t> &state_batches,
                            Ragged<int32_t> &arc_batches, bool log_semiring,
                            Array1<float> scores,
                            const Array1<int32_t> *best_arcs,
                            Array1<float> &state_grad,
                            Array1<float> &arc_grad) {
  if (!UseMetal(fsas, state_batches, kHostTimePerArcBackprop,
                kHostTimePerBatchBackprop))
    return false;
  const char *kernel = "state_scores_backprop";
  const bool forward = direction == ScoresDirection::kForward;
  // Metal binds no buffer of nothing; in the log semiring it is not read.
  Array1<int32_t> best = state_batches.values;
  const bool find_best = !log_semiring && !forward;
  if (find_best) {
    // Before anything is launched, for which an allocation would wait.
    best = Array1<int32_t>(fsas.Context(), scores.Dim());
  } else if (!log_semiring) {
    K2_CHECK_NE(best_arcs, nullptr);
    best = *best_arcs;
  }
  Inputs inputs = Gather(kernel, fsas, state_batches, arc_batches,
                         /*to_src*/ !forward, /*descending*/ forward,
                         log_semiring, !log_semiring);
  if (find_best) BestLeavingArcs(fsas, scores, best);
  mps::Launch(kSource, kernel,
              {static_cast<uint32_t>(fsas.Dim0()), inputs.threads},
              {inputs.batch_begins, inputs.states, inputs.arc_begins,
               inputs.list, inputs.links, ToTorch(scores), ToTorch(best),
               ToTorch(state_grad), ToTorch(arc_grad), inputs.params});
  return true;
}

}  // namespace k2
