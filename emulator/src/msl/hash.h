#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mps_emulator::msl {

// A number of all fields, the same in every process.  The borders between
// fields count.
inline std::string Hash(const std::vector<std::string> &fields) {
  std::string text;
  for (const std::string &field : fields)
    text += std::to_string(field.size()) + ":" + field;
  return std::to_string(std::hash<std::string>()(text));
}

}  // namespace mps_emulator::msl
