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

#include "k2/csrc/mps/arc_post.h"

namespace k2 {

bool TotScoresMps(FsaVec &, Array1<float>, Array1<float> *) { return false; }

bool TotScoresLogBackpropMps(FsaVec &, const at::Tensor &, const at::Tensor &,
                             const at::Tensor &) {
  return false;
}

bool ArcPostMps(FsaVec &, Array1<float>, Array1<float>, Array1<float> *) {
  return false;
}

bool ArcPostBackpropMps(FsaVec &, Ragged<int32_t> &, Array1<float>,
                        Array1<float> &, Array1<float> &) {
  return false;
}

}  // namespace k2
