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

#ifndef K2_CSRC_BAD_LINE_H_
#define K2_CSRC_BAD_LINE_H_

#include <cstdint>
#include <cstdlib>
#include <istream>
#include <string>

#include "k2/csrc/bad_argument.h"

namespace k2 {

// Says what is wrong with a line of text, and throws that as an error of one
// line:
//
//   BadLine(number, line) << "expected a label";
class BadLine : public BadArgument {
 public:
  // The first line has the number 1.
  BadLine(int32_t number, const std::string &line) {
    *this << "line " << number << ", '" << line << "': ";
  }
};

// The largest state: the number of states, one more, must fit into an int32_t.
constexpr int32_t kLastState = INT32_MAX - 1;

// Throws unless both numbers of a line can be states.
inline void CheckStates(int32_t number, const std::string &line,
                        int32_t src_state, int32_t dest_state) {
  if (src_state < 0 || dest_state < 0)
    BadLine(number, line) << "a state is negative";
  if (src_state > kLastState || dest_state > kLastState)
    BadLine(number, line) << "a state is too large";
}

// Reads a number, which may be infinite, unlike with operator>>.  Sets failbit
// if there is no number.
inline void ReadScore(std::istream &is, float *score) {
  std::string token;
  char *end = nullptr;
  if (is >> token) *score = std::strtof(token.c_str(), &end);
  if (end == nullptr || *end != '\0') is.setstate(std::ios::failbit);
}

}  // namespace k2

#endif  // K2_CSRC_BAD_LINE_H_
