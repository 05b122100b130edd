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

#ifndef K2_CSRC_ON_UNWIND_H_
#define K2_CSRC_ON_UNWIND_H_

#include <exception>
#include <utility>

namespace k2 {

// Calls a function in the destructor, if the destructor runs because of an
// exception that was thrown after the construction.  The function must not
// throw.
template <typename F>
class OnUnwind {
 public:
  explicit OnUnwind(F f)
      : f_(std::move(f)), num_exceptions_(std::uncaught_exceptions()) {}

  ~OnUnwind() {
    if (std::uncaught_exceptions() > num_exceptions_) f_();
  }

  OnUnwind(const OnUnwind &) = delete;
  OnUnwind &operator=(const OnUnwind &) = delete;

 private:
  F f_;
  int num_exceptions_;
};

}  // namespace k2

#endif  // K2_CSRC_ON_UNWIND_H_
