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

#ifndef K2_CSRC_MPS_KERNELS_LOG_ADD_H_
#define K2_CSRC_MPS_KERNELS_LOG_ADD_H_

// For kernels only.

// log(FLT_EPSILON).  The exp() of a smaller number, added to 1, gives 1.
constant float kMinLogDiff = -15.942385152878742f;

// Returns log(1 + u) for 0 <= u <= 1; metal_stdlib has no log1p().  1 + u is
// rounded to w, and log(w) * u / (w - 1) corrects the error of this rounding
// (W. Kahan, see Higham, Accuracy and Stability of Numerical Algorithms,
// section 1.14.1).
inline float Log1p(float u) {
  float w = 1.0f + u;
  return w == 1.0f ? u : metal::precise::log(w) * (u / (w - 1.0f));
}

#endif  // K2_CSRC_MPS_KERNELS_LOG_ADD_H_
