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

#include "k2/csrc/mps/signpost.h"

#include <os/log.h>
#include <os/signpost.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

namespace k2 {
namespace mps {

namespace {

constexpr const char *kSubsystem = "org.k2-fsa.k2";

// Returns the category of functions and waits.  With K2_MPS_SIGNPOSTS=1 in the
// environment, the category is an ordinary one that is always on.  Tools that
// cannot turn dynamic tracing on need a category that is always on.
const char *TracingCategory() {
  const char *value = std::getenv("K2_MPS_SIGNPOSTS");
  bool always = value != nullptr && std::strcmp(value, "1") == 0;
  return always ? "Tracing" : OS_LOG_CATEGORY_DYNAMIC_TRACING;
}

os_log_t LogOf(Signpost::Kind kind) {
  static os_log_t tracing = os_log_create(kSubsystem, TracingCategory());
  static os_log_t points =
      os_log_create(kSubsystem, OS_LOG_CATEGORY_POINTS_OF_INTEREST);
  return kind == Signpost::kDispatch ? points : tracing;
}

// Returns the function's name in a __PRETTY_FUNCTION__.  For example, the name
// in "k2::Array1<T> &k2::Scale(int, T) [T = float]" is "k2::Scale".
std::string NameOf(const char *function) {
  std::string name = function;
  const std::string unnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(unnamed)) != std::string::npos;)
    name.erase(at, unnamed.size());
  auto end = std::find(name.begin(), name.end(), '(');
  if (end == name.end()) return name;
  auto begin = end;
  for (int32_t depth = 0; begin != name.begin(); --begin) {
    const char c = begin[-1];
    depth += (c == '>') - (c == '<');
    if (depth == 0 && (c == ' ' || c == '&' || c == '*')) break;
  }
  return std::string(begin, end);
}

}  // namespace

Signpost::Signpost(Kind kind, const char *message) : kind_(kind) {
  os_log_t log = LogOf(kind);
  if (!os_signpost_enabled(log)) return;
  id_ = os_signpost_id_generate(log);
  // The macros need literals for the names of intervals.
  switch (kind) {
    case kFunction: {
      const std::string name = NameOf(message);
      os_signpost_interval_begin(log, id_, "function", "%{public}s",
                                 name.c_str());
      break;
    }
    case kWait:
      os_signpost_interval_begin(log, id_, "wait");
      break;
    case kDispatch:
      os_signpost_interval_begin(log, id_, "dispatch", "%{public}s", message);
      break;
  }
}

void Signpost::End() {
  os_log_t log = LogOf(kind_);
  switch (kind_) {
    case kFunction:
      os_signpost_interval_end(log, id_, "function");
      break;
    case kWait:
      os_signpost_interval_end(log, id_, "wait");
      break;
    case kDispatch:
      os_signpost_interval_end(log, id_, "dispatch");
      break;
  }
}

}  // namespace mps
}  // namespace k2
