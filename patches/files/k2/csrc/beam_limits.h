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

#ifndef K2_CSRC_BEAM_LIMITS_H_
#define K2_CSRC_BEAM_LIMITS_H_

#include <cmath>
#include <cstdint>

#include "k2/csrc/log.h"

namespace k2 {

// The beam of intersect_dense, and the limits for the size of the lattice.
struct BeamLimits {
  int32_t max_states, max_arcs;
  float beam;

  /* Returns whether a limit is exceeded.

     @param [in] num_states   The number of kept states of all FSAs.
     @param [in] num_arcs     The number of the graphs' arcs that leave these
                              states.
   */
  bool Exceeded(int64_t num_states, int64_t num_arcs) const {
    return num_states > max_states || num_arcs > max_arcs;
  }

  /* Narrows the beam if a limit is exceeded.  The arguments are those of
     Exceeded().

     @return  Whether a limit is exceeded.
   */
  bool Narrow(int64_t num_states, int64_t num_arcs) {
    if (!Exceeded(num_states, num_arcs)) return false;
    const float before = beam;
    const bool by_states = num_states > max_states;
    const double times = by_states ? sqrt(max_states * 1.0 / num_states)
                                   : sqrt(max_arcs * 1.0 / num_arcs);
    beam = before * times;
    if (beam < before * 0.25) beam = before * 0.25;
    if (beam > before * 0.75) beam = before * 0.75;
    K2_LOG(INFO) << (by_states ? "Num-states " : "Num-arcs ")
                 << (by_states ? num_states : num_arcs) << " exceeds limit "
                 << (by_states ? max_states : max_arcs)
                 << ", decreasing beam from " << before << " to " << beam;
    return true;
  }
};

}  // namespace k2

#endif  // K2_CSRC_BEAM_LIMITS_H_
