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

#ifndef K2_CSRC_MPS_KERNELS_SIMDGROUP_H_
#define K2_CSRC_MPS_KERNELS_SIMDGROUP_H_

// For kernels in which a simdgroup of 32 lanes processes a list.  For Metal
// only.

// The votes of all lanes; lane 0's is the lowest bit.
inline uint Ballot(bool vote) {
  return static_cast<uint>(
      static_cast<metal::simd_vote::vote_t>(metal::simd_ballot(vote)));
}

// The bits of the lanes before this lane.
inline uint Below(uint bits, int lane) { return bits & ((1u << lane) - 1u); }

// The index of the highest set bit; `bits` is not 0.
inline int HighestBit(uint bits) {
  return 31 - static_cast<int>(metal::clz(bits));
}

// Returns the last i with begins[i] <= at, where begins[0] <= at < begins[n].
inline int Find(device const int *begins, int n, int at) {
  int low = 0;
  while (n - low > 1) {
    const int middle = (low + n) / 2;
    if (begins[middle] <= at)
      low = middle;
    else
      n = middle;
  }
  return low;
}

#endif  // K2_CSRC_MPS_KERNELS_SIMDGROUP_H_
