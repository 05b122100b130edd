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

// For kernels only: functions with which a simdgroup of 32 lanes, or a
// threadgroup, goes through a list.

// Returns the votes of all lanes.  The lowest bit is the vote of lane 0.
inline uint Ballot(bool vote) {
  return static_cast<uint>(
      static_cast<metal::simd_vote::vote_t>(metal::simd_ballot(vote)));
}

// Returns the bits of the lanes before lane number `lane`.
inline uint Below(uint bits, int lane) { return bits & ((1u << lane) - 1u); }

// Returns the index of the highest set bit.  `bits` must not be 0.
inline int HighestBit(uint bits) {
  return 31 - static_cast<int>(metal::clz(bits));
}

// Returns the last i < n with begins[i] <= at.  begins[0] must not exceed `at`.
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

// Replaces each value by the sum of all values up to and including this value.
// Before the call, each thread writes values[thread_id].  All threads of the
// threadgroup must call this function.
template <typename T>
inline void PrefixSums(threadgroup T *values, int thread_id, int threads) {
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  for (int distance = 1; distance < threads; distance *= 2) {
    const T more = thread_id >= distance ? values[thread_id - distance] : T(0);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    values[thread_id] += more;
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
}

#endif  // K2_CSRC_MPS_KERNELS_SIMDGROUP_H_
