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

#ifndef K2_CSRC_MPS_KERNELS_PHILOX_H_
#define K2_CSRC_MPS_KERNELS_PHILOX_H_

// For kernels only.

// Philox4x32-7, a random number generator without a state.  It is from J.
// Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.  With
// fewer than seven rounds, the generator does not pass all tests of that paper.

// Returns 128 random bits for each pair of a counter and a key.
inline metal::uint4 Philox(metal::uint4 counter, metal::uint2 key) {
  for (int round = 0; round != 7; ++round) {
    const ulong from_x = 0xD2511F53ul * counter.x,
                from_z = 0xCD9E8D57ul * counter.z;
    counter =
        metal::uint4(uint(from_z >> 32) ^ counter.y ^ key.x, uint(from_z),
                     uint(from_x >> 32) ^ counter.w ^ key.y, uint(from_x));
    key += metal::uint2(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter;
}

#endif  // K2_CSRC_MPS_KERNELS_PHILOX_H_
