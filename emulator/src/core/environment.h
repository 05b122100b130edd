// Reads environment variables.
#pragma once

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>

#include "core/fatal.h"

namespace mps_emulator {

// Returns the value of a variable, or "" if the variable is not set.
inline std::string Environment(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

// Returns true if the variable is set, and neither empty nor 0.
inline bool EnvironmentFlag(const char *name) {
  std::string value = Environment(name);
  return !value.empty() && value != "0";
}

// Returns the value of a variable that holds a number; nullopt if the variable
// is empty or not set.  Ends the program if the value is something else,
// because a mistyped limit would otherwise have no effect.
inline std::optional<unsigned> EnvironmentNumber(const char *name) {
  const std::string value = Environment(name);
  if (value.empty()) return std::nullopt;
  unsigned number = 0;
  const char *end = value.data() + value.size();
  auto [read, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || read != end)
    Fatal("%s is '%s': set it to a number", name, value.c_str());
  return number;
}

}  // namespace mps_emulator
