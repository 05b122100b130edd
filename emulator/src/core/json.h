// JSON, as far as the emulator writes it.
#pragma once

#include <string>

namespace mps_emulator {

// A text as a JSON string, its quotes included.
std::string Quoted(const std::string &text);

}  // namespace mps_emulator
