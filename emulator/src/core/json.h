// Writing JSON.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace mps_emulator {

// Returns two lower-case hexadecimal digits for each byte.
std::string Hexadecimal(std::string_view bytes);

// A JSON value, constructed from a text, a number or a bool.
class Json {
 public:
  Json(const std::string &text);
  Json(const char *text) : Json(std::string(text)) {}
  Json(bool value) : text_(value ? "true" : "false") {}
  Json(std::integral auto number) : text_(std::to_string(number)) {}

  // Returns a value whose JSON is `text`.
  static Json Written(std::string text);

  const std::string &text() const { return text_; }

 private:
  Json() = default;

  std::string text_;
};

// Returns the members of a JSON object as text: "name":value,...
using JsonMembers = std::initializer_list<std::pair<std::string, Json>>;
std::string Members(JsonMembers members);

inline Json Object(JsonMembers members) {
  return Json::Written("{" + Members(members) + "}");
}

// Returns a JSON list.  `to_json` maps an item to a Json, or to an argument of
// Json's constructor.
template <typename Range, typename ToJson = std::identity>
Json List(const Range &range, ToJson to_json = {}) {
  std::string ans = "[";
  for (const auto &item : range)
    ans += (ans.size() > 1 ? "," : "") + Json(to_json(item)).text();
  return Json::Written(ans + "]");
}

}  // namespace mps_emulator
