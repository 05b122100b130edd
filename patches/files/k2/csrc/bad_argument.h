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

#ifndef K2_CSRC_BAD_ARGUMENT_H_
#define K2_CSRC_BAD_ARGUMENT_H_

#include <sstream>
#include <stdexcept>

namespace k2 {

// Builds a message that says what is wrong with an argument.  The destructor
// throws the message as std::runtime_error.  K2_CHECK() is for faults of k2,
// and also prints a stack trace.
//
//   if (dim != 1) BadArgument() << "Expected dim: 1. Given: " << dim;
class BadArgument {
 public:
  ~BadArgument() noexcept(false) { throw std::runtime_error(os_.str()); }

  template <typename T>
  BadArgument &operator<<(const T &value) {
    os_ << value;
    return *this;
  }

 private:
  std::ostringstream os_;
};

}  // namespace k2

#endif  // K2_CSRC_BAD_ARGUMENT_H_
