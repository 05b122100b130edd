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

#ifndef K2_CSRC_BEAM_NARROWING_H_
#define K2_CSRC_BEAM_NARROWING_H_

#include <cstdint>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "k2/csrc/array.h"
#include "k2/csrc/array_ops.h"
#include "k2/csrc/beam_limits.h"
#include "k2/csrc/eval.h"
#include "k2/csrc/macros.h"

// Functions that narrow the beam of intersect_dense until the lattice is within
// its limits.  If the beam becomes too small, only the best paths are kept.

namespace k2 {

// The total size of the best paths of all FSAs.
struct BestPaths {
  int64_t num_states = 0;
  int64_t num_leaving_arcs = 0;  // the graphs' arcs that leave these states
};

/* Returns the size of the best paths.  The arguments that are not explained
   here are those of GetBestArcs() in intersect_dense.cu.

   @param [in] best_arcs   What GetBestArcs() returned.
 */
template <typename FsaInfo, typename CompressedArc>
BestPaths SizeOfBestPaths(ContextPtr c, int32_t T, const FsaInfo *fsa_info,
                          const CompressedArc *carcs,
                          const int32_t *row_splits2,
                          const Array1<int32_t> &best_arcs) {
  const int32_t dim = best_arcs.Dim(), *best_arcs_data = best_arcs.Data();
  Array1<int64_t> num_states(c, dim), num_arcs(c, dim);
  int64_t *num_states_data = num_states.Data(),
          *num_arcs_data = num_arcs.Data();
  K2_EVAL(
      c, dim, lambda_count, (int32_t i)->void {
        const int32_t arc = best_arcs_data[i], t = i % (T + 1);
        int64_t states = 0, arcs = 0;
        if (arc >= 0) {
          const int32_t *begin = row_splits2 +
                                 fsa_info[i / (T + 1)].state_offset +
                                 carcs[arc].src_state;
          states = t == 0 ? 2 : 1;  // the destination; at t = 0 the source too
          arcs = begin[1] - begin[0];
        }
        num_states_data[i] = states;
        num_arcs_data[i] = arcs;
      });
  BestPaths ans;
  ans.num_states = Sum(num_states);
  ans.num_leaving_arcs = Sum(num_arcs);
  return ans;
}

// Throws std::runtime_error if the best paths alone exceed a limit.
inline void RequireLimit(const char *name, int32_t limit, const char *what,
                         int64_t needed) {
  if (needed <= limit) return;
  std::ostringstream os;
  os << "intersect_dense cannot keep to " << name << "=" << limit
     << ": the best paths alone have " << needed << " " << what
     << ". Please use a larger " << name
     << ", or fewer or shorter sequences in a batch.";
  throw std::runtime_error(os.str());
}

/* Does what BeamLimits::Narrow() does.  If the beam becomes too small, sets the
   beam to -infinity, which keeps only the best paths.  Throws
   std::runtime_error if the best paths alone exceed a limit.

   @param [in] best   The size of the best paths; not read if no limit is
                      exceeded.
   @return   Whether a limit is exceeded.
 */
inline bool NarrowBeam(int64_t num_states, int64_t num_arcs,
                       const BestPaths &best, BeamLimits *limits) {
  if (!limits->Exceeded(num_states, num_arcs)) return false;
  RequireLimit("max_states", limits->max_states, "states", best.num_states);
  RequireLimit("max_arcs", limits->max_arcs, "arcs that leave their states",
               best.num_leaving_arcs);
  limits->Narrow(num_states, num_arcs);
  // A beam of 1e-10 is smaller than the rounding errors of scores.
  if (!(limits->beam > 1e-10f))
    limits->beam = -std::numeric_limits<float>::infinity();
  return true;
}

}  // namespace k2

#endif  // K2_CSRC_BEAM_NARROWING_H_
