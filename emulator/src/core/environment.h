// Reads environment variables.
#pragma once

#include <cstdlib>
#include <string>

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

}  // namespace mps_emulator
