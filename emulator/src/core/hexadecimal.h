#pragma once

#include <string>
#include <string_view>

namespace mps_emulator {

// Two lower-case digits for each byte.
inline std::string Hexadecimal(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace mps_emulator
