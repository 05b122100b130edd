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

#ifndef K2_CSRC_BEST_PATHS_H_
#define K2_CSRC_BEST_PATHS_H_

#include <cfloat>
#include <cstdint>
#include <limits>

#include "k2/csrc/array.h"
#include "k2/csrc/eval.h"
#include "k2/csrc/macros.h"

// intersect_dense calls these functions to keep the best path of each FSA.

namespace k2 {

/* Returns whether pruning may cut the best path of an FSA.  Pruning may cut the
   path if rounding can make a sum along the path smaller than the path's total
   score by more than the beam.  If the scores are log-probs, the function
   returns true whenever pruning cuts the path, because a sum of log-probs along
   a path only grows in absolute value.

   @param [in] start, end   The total score of the FSA: the result of the
                            backward pass, and the result of the forward pass.
   @param [in] num_frames   The number of frames of the FSA's sequence.
   @param [in] beam         The beam of the pruning, in the unit of the scores.
   @return  Whether pruning may cut the path; false if the FSA has no path, that
            is, if a score is -infinity.
 */
__host__ __device__ __forceinline__ bool MayCutBestPath(float start, float end,
                                                        int32_t num_frames,
                                                        float beam) {
  const float apart = start < end ? end - start : start - end,
              start_size = start < 0 ? -start : start,
              end_size = end < 0 ? -end : end,
              size = start_size < end_size ? end_size : start_size;
  return start >= -FLT_MAX && end >= -FLT_MAX &&
         !(beam > apart + (num_frames + 1.0f) * FLT_EPSILON * size);
}

/* Follows the best path of each FSA with the help of the backward scores.  If
   several arcs are equally good, the path takes the first one.  FsaInfo,
   CompressedArc and the arguments that are not explained here are those of
   MultiGraphDenseIntersect.

   @param [in] T    The number of frames of the longest sequence.
   @return  Element fsa * (T + 1) + t is the arc of a_fsas that the FSA's best
            path follows from time t to time t + 1, or -1 if there is no such
            arc.
 */
template <typename FsaInfo, typename CompressedArc>
Array1<int32_t> GetBestArcs(ContextPtr c, int32_t num_fsas, int32_t T,
                            const FsaInfo *fsa_info, const CompressedArc *carcs,
                            const int32_t *row_splits2,
                            float *const *state_scores,
                            const Array2<float> &b_scores) {
  Array1<int32_t> ans(c, num_fsas * (T + 1), -1);
  int32_t *ans_data = ans.Data();
  const float *scores = b_scores.Data();
  const int32_t stride = b_scores.ElemStride0(), num_cols = b_scores.Dim1();
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  K2_EVAL(
      c, num_fsas, lambda_follow_path, (int32_t i)->void {
        const FsaInfo info = fsa_info[i];
        const int32_t offset = 2 * info.state_offset;
        int32_t state = 0;
        bool has_path = info.num_states != 0 &&
                        state_scores[info.T][offset] > minus_infinity;
        for (int32_t t = 0; has_path && t != info.T; ++t) {
          const float score = state_scores[info.T - t][offset + state],
                      *next = state_scores[info.T - t - 1] + offset,
                      *row = scores + info.scores_offset +
                             static_cast<int64_t>(stride) * t;
          const int32_t begin = row_splits2[info.state_offset + state],
                        end = row_splits2[info.state_offset + state + 1];
          has_path = false;
          for (int32_t k = begin; k != end && !has_path; ++k) {
            const CompressedArc carc = carcs[k];
            // The additions are in the order of DoStep(), so that the sum for
            // an arc of the best path is equal to the state's score.
            if (carc.label_plus_one < num_cols &&
                next[carc.dest_state] + carc.score + row[carc.label_plus_one] ==
                    score) {
              ans_data[i * (T + 1) + t] = k;
              state = carc.dest_state;
              has_path = true;
            }
          }
        }
      });
  return ans;
}

// Returns whether element `index` of best_arcs, which GetBestArcs() returned,
// is `arc`.  Returns false if best_arcs is nullptr.
__host__ __device__ __forceinline__ bool IsBestArc(const int32_t *best_arcs,
                                                   int32_t index, int32_t arc) {
  return best_arcs != nullptr && best_arcs[index] == arc;
}

/* Returns whether an FSA's best path is in a state at time t.  Returns false if
   best_arcs is nullptr.

   @param [in] begin   The index in best_arcs of the FSA's element for time 0.
 */
template <typename CompressedArc>
__host__ __device__ __forceinline__ bool IsOnBestPath(
    const int32_t *best_arcs, const CompressedArc *carcs, int32_t begin,
    int32_t t, int32_t state) {
  if (best_arcs == nullptr) return false;
  const int32_t after = best_arcs[begin + t],
                before = t == 0 ? -1 : best_arcs[begin + t - 1];
  return (after >= 0 && carcs[after].src_state == state) ||
         (before >= 0 && carcs[before].dest_state == state);
}

}  // namespace k2

#endif  // K2_CSRC_BEST_PATHS_H_
