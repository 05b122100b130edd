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
#include <istream>
#include <limits>
#include <locale>
#include <sstream>
#include <string>

#include "k2/csrc/bad_argument.h"

namespace k2 {

// Builds a message that says what is wrong with a line of text.  As with
// BadArgument, the destructor throws std::runtime_error:
//
//   BadLine(number, line) << "expected a label";
class BadLine : public BadArgument {
 public:
  // `number` is the number of the line, counted from 1.
  BadLine(int32_t number, const std::string &line) {
    *this << "line " << number << ", '" << line << "': ";
  }
};

// The largest state.  The number of states is greater by 1, and must fit into
// an int32_t.
constexpr int32_t kLastState = INT32_MAX - 1;

// Throws if src_state or dest_state, both read from a line, cannot be a state.
inline void CheckStates(int32_t number, const std::string &line,
                        int32_t src_state, int32_t dest_state) {
  if (src_state < 0 || dest_state < 0)
    BadLine(number, line) << "a state is negative";
  if (src_state > kLastState || dest_state > kLastState)
    BadLine(number, line) << "a state is too large";
}

// Reads a decimal number, with a point in any locale.  Unlike operator>>, also
// reads inf and infinity.  Sets failbit if there is no such number, or if it
// is too large for a float.
inline void ReadScore(std::istream &is, float *score) {
  std::string token;
  if (!(is >> token)) return;
  bool has_sign = token[0] == '+' || token[0] == '-';
  std::string word = token.substr(has_sign);
  for (char &c : word)
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  if (word == "inf" || word == "infinity") {
    float infinity = std::numeric_limits<float>::infinity();
    *score = token[0] == '-' ? -infinity : infinity;
    return;
  }
  // operator>> of some libraries also takes hexadecimal numbers and nan.
  bool is_decimal =
      word.find_first_not_of("0123456789.e+-") == std::string::npos;
  std::istringstream number(token);
  number.imbue(std::locale::classic());
  if (!is_decimal || !(number >> *score) || !number.eof())
    is.setstate(std::ios::failbit);
}

}  // namespace k2

#endif  // K2_CSRC_BAD_LINE_H_
