#include "metal/describe.h"

#include <algorithm>

#include "core/hexadecimal.h"
#include "core/json.h"
#include "core/record.h"

namespace mps_emulator {

namespace {

size_t Record(const msl::Library &library) {
  const msl::CompileOptions &options = library.options;
  return RecordProgram(library.source,
                       Members({{"fast_math", options.fast_math},
                                {"language_version", options.language_version}}));
}

}  // namespace

std::string DescribeDispatch(
    const msl::Dispatch &dispatch,
    const std::vector<std::pair<unsigned, size_t>> &places,
    const std::string &pipeline, uint64_t encoder, bool concurrent) {
  std::string threadgroup_bytes;
  std::vector<Json> arguments;
  for (unsigned index = 0; index < msl::kMaxBuffers; ++index) {
    if (size_t bytes = dispatch.threadgroup_bytes[index])
      threadgroup_bytes += (threadgroup_bytes.empty() ? "" : ",") +
                           Members({{std::to_string(index), bytes}});
    const msl::Binding &bytes = dispatch.buffers[index];
    auto place = std::find_if(places.begin(), places.end(),
                              [&](const auto &p) { return p.first == index; });
    if (place != places.end())
      arguments.push_back(Object({{"index", index},
                                  {"use", place - places.begin()},
                                  {"offset", place->second}}));
    else if (bytes.data)
      arguments.push_back(
          Object({{"index", index},
                  {"bytes", Hexadecimal({static_cast<const char *>(bytes.data),
                                         bytes.size})}}));
  }
  return Members(
      {{"kind", "dispatch"},
       {"kernel", dispatch.kernel->name},
       {"label", dispatch.label},
       {"pipeline", pipeline},
       {"program", Record(*dispatch.library)},
       {"grid", List(dispatch.grid)},
       {"threadgroup", List(dispatch.threadgroup)},
       {"threadgroup_bytes", Json::Written("{" + threadgroup_bytes + "}")},
       {"encoder", encoder},
       {"concurrent", concurrent},
       {"arguments", List(arguments)}});
}

}  // namespace mps_emulator
