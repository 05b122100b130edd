#include "core/json.h"

namespace mps_emulator {

std::string Quoted(const std::string &text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string ans = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      ans += '\\';
      ans += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      ans += "\\u00";
      ans += kDigits[c >> 4];
      ans += kDigits[c & 15];
    } else {
      ans += c;
    }
  }
  return ans + "\"";
}

}  // namespace mps_emulator
