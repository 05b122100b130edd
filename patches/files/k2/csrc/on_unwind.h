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

#include <functional>
#include <utility>

namespace k2 {

// Calls a function in the destructor, if an exception ends a scope before it
// calls Dismiss().  The function must not throw.  (Only C++17 can tell by
// itself whether a destructor runs because of an exception.)
class OnUnwind {
 public:
  explicit OnUnwind(std::function<void()> f) : f_(std::move(f)) {}

  ~OnUnwind() {
    if (!dismissed_) f_();
  }

  void Dismiss() { dismissed_ = true; }

  OnUnwind(const OnUnwind &) = delete;
  OnUnwind &operator=(const OnUnwind &) = delete;

 private:
  std::function<void()> f_;
  bool dismissed_ = false;
};

}  // namespace k2

#endif  // K2_CSRC_ON_UNWIND_H_
