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

#ifndef K2_CSRC_MPS_KERNELS_BEST_PATH_H_
#define K2_CSRC_MPS_KERNELS_BEST_PATH_H_

// For kernels only.

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
inline bool MayCutBestPath(float start, float end, int num_frames, float beam) {
  const float apart = start < end ? end - start : start - end,
              start_size = start < 0 ? -start : start,
              end_size = end < 0 ? -end : end,
              size = start_size < end_size ? end_size : start_size;
  return start >= -FLT_MAX && end >= -FLT_MAX &&
         !(beam > apart + (num_frames + 1.0f) * FLT_EPSILON * size);
}

#endif  // K2_CSRC_MPS_KERNELS_BEST_PATH_H_
