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

// For kernels only.  As MayCutBestPath() of k2/csrc/best_paths.h, which tells
// whether rounding may make pruning cut the best path of an FSA.
inline bool MayCutBestPath(float start, float end, int num_frames, float beam) {
  const float apart = metal::fabs(end - start),
              size = metal::fmax(metal::fabs(start), metal::fabs(end));
  return start > -INFINITY && end > -INFINITY &&
         !(beam > apart + (static_cast<float>(num_frames) + 1.0f) *
                              FLT_EPSILON * size);
}

#endif  // K2_CSRC_MPS_KERNELS_BEST_PATH_H_
