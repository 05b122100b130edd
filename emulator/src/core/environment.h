// Switches that the environment sets.
#pragma once

#include <cstdlib>
#include <string>

namespace mps_emulator {

// The value of a variable, "" if it is not set.
inline std::string Environment(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

// True if the variable is set, and neither empty nor 0.
inline bool EnvironmentFlag(const char *name) {
  std::string value = Environment(name);
  return !value.empty() && value != "0";
}

}  // namespace mps_emulator
