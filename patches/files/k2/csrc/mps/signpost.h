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

#ifndef K2_CSRC_MPS_SIGNPOST_H_
#define K2_CSRC_MPS_SIGNPOST_H_

#include <cstdint>

// Intervals that Apple's Instruments shows on its timeline, under the
// subsystem org.k2-fsa.k2.  This header is plain C++.

namespace k2 {
namespace mps {

// An interval that begins with the object's construction and ends with its
// destruction, on any thread.  Intervals may be nested.
class Signpost {
 public:
  // The name of the interval.
  enum Kind {
    // A range of NVTX_RANGE().  The message is the function's name.  The
    // category is DynamicTracing, which costs little while no tool records.
    kFunction,
    // The host checks that the GPU is done.  There is no message.  The category
    // is DynamicTracing, because one loss needs thousands of these checks.
    kWait,
    // The host encodes a kernel.  The message is the kernel's name.  Dispatches
    // are few, so their category is PointsOfInterest, which tools show by
    // default.
    kDispatch,
  };

  /*
     @param [in] kind      The kind of interval.
     @param [in] message   The message; the caller may free it after the call.
                           For kFunction the message is K2_FUNC, and tools show
                           the function's name without types.
   */
  explicit Signpost(Kind kind, const char *message = "");

  ~Signpost() {
    if (id_ != 0) End();
  }

  Signpost(const Signpost &) = delete;
  Signpost &operator=(const Signpost &) = delete;

 private:
  void End();

  Kind kind_;
  uint64_t id_ = 0;  // 0 if no tool records
};

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_SIGNPOST_H_
