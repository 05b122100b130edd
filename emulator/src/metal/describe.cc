#include "metal/describe.h"

#include <algorithm>
#include <string_view>

#include "core/json.h"
#include "core/record.h"

namespace mps_emulator {

namespace {

// "name":value
std::string Member(const char *name, const std::string &value) {
  return Quoted(name) + ":" + value;
}

std::string Member(const char *name, uint64_t value) {
  return Member(name, std::to_string(value));
}

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string ans = "\"";
  for (unsigned char byte : bytes) {
    ans += kDigits[byte >> 4];
    ans += kDigits[byte & 15];
  }
  return ans + "\"";
}

// The items of a range as a JSON list.
template <typename Range, typename Function>
std::string List(const Range &range, Function to_json) {
  std::string ans = "[";
  for (const auto &item : range)
    ans += (ans.size() > 1 ? "," : "") + to_json(item);
  return ans + "]";
}

std::string Describe(const msl::FunctionConstantValue &constant) {
  return "{" +
         (constant.name.empty() ? Member("index", constant.index)
                                : Member("name", Quoted(constant.name))) +
         "," + Member("bytes", Hex(constant.bytes)) + "}";
}

size_t Record(const msl::Library &library) {
  const msl::CompileOptions &options = library.options();
  return RecordProgram(
      library.source(),
      Member("fast_math", options.fast_math ? "true" : "false") + "," +
          Member("language_version", options.language_version) + "," +
          Member("macros", List(options.macros,
                                [](const auto &macro) {
                                  return "[" + Quoted(macro.first) + "," +
                                         Quoted(macro.second) + "]";
                                })) +
          "," +
          Member("function_constants",
                 List(options.function_constants, Describe)));
}

}  // namespace

std::string DescribeDispatch(
    const msl::Dispatch &dispatch,
    const std::vector<std::pair<unsigned, size_t>> &places,
    const std::string &pipeline, uint64_t encoder, bool concurrent) {
  auto number = [](uint64_t n) { return std::to_string(n); };
  std::string threadgroup_bytes;
  for (unsigned index = 0; index < msl::kMaxBuffers; ++index)
    if (size_t bytes = dispatch.threadgroup_bytes[index])
      threadgroup_bytes += (threadgroup_bytes.empty() ? "" : ",") +
                           Member(number(index).c_str(), bytes);
  std::string arguments;
  for (unsigned index = 0; index < msl::kMaxBuffers; ++index) {
    const msl::Binding &bytes = dispatch.buffers[index];
    auto place = std::find_if(places.begin(), places.end(),
                              [&](const auto &p) { return p.first == index; });
    std::string what;
    if (place != places.end())
      what = Member("use", place - places.begin()) + "," +
             Member("offset", place->second);
    else if (bytes.data)
      what = Member("bytes",
                    Hex({static_cast<const char *>(bytes.data), bytes.size}));
    else
      continue;
    arguments += (arguments.empty() ? "{" : ",{") + Member("index", index) +
                 "," + what + "}";
  }
  return Member("kind", "\"dispatch\"") + "," +
         Member("kernel", Quoted(dispatch.kernel->name)) + "," +
         Member("label", Quoted(dispatch.label)) + "," +
         Member("pipeline", Quoted(pipeline)) + "," +
         Member("program", Record(*dispatch.library)) + "," +
         Member("grid", List(dispatch.grid, number)) + "," +
         Member("threadgroup", List(dispatch.threadgroup, number)) + "," +
         Member("threadgroup_bytes", "{" + threadgroup_bytes + "}") + "," +
         Member("encoder", encoder) + "," +
         Member("concurrent", concurrent ? "true" : "false") + "," +
         Member("arguments", "[" + arguments + "]");
}

std::string DescribeCopy(size_t from, size_t to, size_t size) {
  return Member("kind", "\"copy\"") + "," + Member("from", from) + "," +
         Member("to", to) + "," + Member("size", size);
}

std::string DescribeFill(size_t offset, size_t size, unsigned char value) {
  return Member("kind", "\"fill\"") + "," + Member("offset", offset) + "," +
         Member("size", size) + "," + Member("value", value);
}

}  // namespace mps_emulator
