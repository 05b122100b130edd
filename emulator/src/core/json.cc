#include "core/json.h"

namespace mps_emulator {

std::string Hexadecimal(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Json::Json(const std::string &text) {
  text_ = "\"";
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      text_ += "\\u00" + Hexadecimal({&c, 1});
      continue;
    }
    if (c == '"' || c == '\\') text_ += '\\';
    text_ += c;
  }
  text_ += '"';
}

Json Json::Written(std::string text) {
  Json value;
  value.text_ = std::move(text);
  return value;
}

std::string Members(JsonMembers members) {
  std::string ans;
  for (const auto &[name, value] : members)
    ans += (ans.empty() ? "" : ",") + Json(name).text() + ":" + value.text();
  return ans;
}

}  // namespace mps_emulator
