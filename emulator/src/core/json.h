// Writing JSON.
#pragma once

#include <string>

namespace mps_emulator {

// A text as a JSON string with its quotes.
std::string Quoted(const std::string &text);

}  // namespace mps_emulator
