// Switches that the environment sets.
#pragma once

#include <cstdlib>
#include <string_view>

namespace mps_emulator {

// True if the variable is set, and neither empty nor 0.
inline bool EnvironmentFlag(const char *name) {
  const char *value = getenv(name);
  return value && *value && std::string_view(value) != "0";
}

}  // namespace mps_emulator
