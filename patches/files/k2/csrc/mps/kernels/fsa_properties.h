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

#ifndef K2_CSRC_MPS_KERNELS_FSA_PROPERTIES_H_
#define K2_CSRC_MPS_KERNELS_FSA_PROPERTIES_H_

// Shared by the host and the kernels.

// The bits of FsaBasicProperties (k2/csrc/fsa.h) that kernels compute.  Metal
// cannot compile that header.  mps/lattice.cu compares the values.
enum FsaPropertyBits {
  kLatticeNonempty = 0x02,
  kLatticeArcSorted = 0x10,
  kLatticeArcSortedAndDeterministic = 0x20,
  kLatticeEpsilonFree = 0x40,
  kLatticeMaybeAccessible = 0x80,
  kLatticeMaybeCoaccessible = 0x100,
};

#endif  // K2_CSRC_MPS_KERNELS_FSA_PROPERTIES_H_
