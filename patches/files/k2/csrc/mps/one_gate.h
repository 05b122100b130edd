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

#ifndef K2_CSRC_MPS_ONE_GATE_H_
#define K2_CSRC_MPS_ONE_GATE_H_

#include "k2/csrc/context.h"
#include "k2/csrc/ragged.h"

namespace k2 {

// For a function that reads nothing on mps.
struct ReadsNothing {};

// A function of k2 that runs on the host of mps waits for the GPU before each
// of its loops.  While a OneGate exists, only the first of these waits takes
// place, because nothing gives the GPU work during the function.  A function
// that does give the GPU work, by a kernel or by a tensor, waits again.
//
// The arguments of a constructor are all the memory that the function reads.
// If the GPU has no work that uses this memory, the function does not wait at
// all.
//
// An OneGate has an effect only in its own thread.  OneGates can be nested.  An
// inner OneGate waits again if its memory is not idle.  On other devices, and
// in a build without K2_WITH_MPS, a OneGate does nothing.
class OneGate {
 public:
#if K2_WITH_MPS
  OneGate() : OneGate(/*is_open*/ false) {}
  explicit OneGate(const RaggedShape &shape) : OneGate(IsIdle(shape)) {}
  template <typename T>
  explicit OneGate(const Ragged<T> &ragged) : OneGate(IsIdle(ragged)) {}
  explicit OneGate(ReadsNothing) : OneGate(/*is_open*/ true) {}
  ~OneGate();
  OneGate(const OneGate &) = delete;

 private:
  explicit OneGate(bool is_open);
  static bool IsIdle(const RaggedShape &shape);
  template <typename T>
  static bool IsIdle(const Ragged<T> &ragged) {
    return IsIdle(ragged.shape) && IsIdle(ragged.values.Data());
  }
  static bool IsIdle(const void *data);
#else
  OneGate() {}
  explicit OneGate(const RaggedShape &) {}
  template <typename T>
  explicit OneGate(const Ragged<T> &) {}
  explicit OneGate(ReadsNothing) {}
  ~OneGate() {}  // so that a variable of this type is not unused
#endif
};

}  // namespace k2

#endif  // K2_CSRC_MPS_ONE_GATE_H_
