#include "core/record.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "core/export.h"
#include "core/json.h"
#include "core/stream.h"

namespace mps_emulator {

std::atomic<bool> is_recording{false};

namespace {

namespace fs = std::filesystem;

// Contents are compared and stored in steps of this many bytes.
constexpr size_t kStep = 4096;

// Thrown if a write to the folder fails.
struct Failure {
  std::string message;
};

class File {
 public:
  explicit File(const fs::path &path)
      : path_(path), stream_(path, std::ios::binary) {
    Check();
  }

  void Write(std::string_view bytes) {
    stream_ << bytes;
    Check();
    size_ += bytes.size();
  }

  void Close() {
    stream_.close();
    Check();
  }

  size_t size() const { return size_; }

 private:
  void Check() const {
    if (!stream_) throw Failure{path_.string() + ": " + strerror(errno)};
  }

  const fs::path path_;
  std::ofstream stream_;
  size_t size_ = 0;
};

class Recording {
 public:
  explicit Recording(const fs::path &folder) : folder_(folder) {
    std::error_code error;
    fs::create_directories(folder_ / "programs", error);
    if (error) throw Failure{folder_.string() + ": " + error.message()};
    contents_ = std::make_unique<File>(folder_ / "contents.bin");
  }

  void Before(const Command &command, const std::string &description,
              char *const *device) {
    Json uses = List(command.uses, [](const BufferUse &use) {
      return Object({{"buffer", use.buffer_id}, {"writes", use.writes}});
    });
    line_ = "{" + description + "," +
            Members({{"name", command.name},
                     {"uses", uses},
                     {"before", Changes(command, device, false)}});
  }

  void After(const Command &command, char *const *device) {
    // If no replay can repeat the command, its results count as changes by
    // another writer: the recorder stores the results when the next command
    // uses the buffer.
    if (command.describe)
      line_ += "," + Members({{"after", Changes(command, device, true)}});
    commands_.push_back(Json::Written(line_ + "}"));
  }

  size_t Program(const std::string &text, const std::string &members) {
    auto [found, added] =
        numbers_.try_emplace({text, members}, numbers_.size());
    if (added) {
      std::string name = "programs/" + std::to_string(found->second) + ".metal";
      File file(folder_ / name);
      file.Write(text);
      file.Close();
      programs_.push_back(
          Json::Written("{" + Members({{"file", name}}) + "," + members + "}"));
    }
    return found->second;
  }

  void Finish() {
    contents_->Close();
    File file(folder_ / "manifest.json");
    Json buffers = List(expected_, [](const auto &buffer) {
      return Object({{"id", buffer.first}, {"size", buffer.second.size()}});
    });
    file.Write(Object({{"version", 1},
                       {"programs", List(programs_)},
                       {"buffers", buffers},
                       {"commands", List(commands_)}})
                   .text());
    file.Close();
  }

 private:
  // Compares the device copies of the command's buffers with the recorded
  // contents, and updates the recorded contents.  Returns the differences as a
  // JSON list of [buffer's id, offset, size, offset in contents.bin], in bytes.
  // `written_only`: compares only buffers that the command writes.
  Json Changes(const Command &command, char *const *device, bool written_only) {
    std::vector<std::array<uint64_t, 4>> changes;
    for (size_t i = 0; i != command.uses.size(); ++i) {
      const BufferUse &use = command.uses[i];
      if (written_only && !use.writes) continue;
      auto [found, added] = expected_.try_emplace(use.buffer_id);
      std::vector<char> &expected = found->second;
      if (added) expected.assign(use.size, static_cast<char>(kPoison));
      size_t begin = 0;
      while ((begin = Next(expected, device[i], begin, true)) < use.size) {
        size_t end = Next(expected, device[i], begin, false);
        changes.push_back(
            {use.buffer_id, begin, end - begin, contents_->size()});
        contents_->Write({device[i] + begin, end - begin});
        memcpy(expected.data() + begin, device[i] + begin, end - begin);
        begin = end;
      }
    }
    return List(changes, [](const auto &change) { return List(change); });
  }

  // Compares the recorded contents with the device copy in steps, from offset
  // `begin` on.  Returns the offset of the first step that differs or, if
  // `differing` is false, of the first step that is equal.  Returns the size if
  // there is no such step.
  static size_t Next(const std::vector<char> &expected, const char *device,
                     size_t begin, bool differing) {
    size_t size = expected.size();
    for (; begin < size; begin += kStep) {
      size_t step = std::min(kStep, size - begin);
      bool differs = memcmp(expected.data() + begin, device + begin, step) != 0;
      if (differs == differing) return begin;
    }
    return size;
  }

  const fs::path folder_;
  std::unique_ptr<File> contents_;
  std::vector<Json> commands_;
  std::string line_;  // the JSON text of the running command
  std::map<std::pair<std::string, std::string>, size_t> numbers_;
  std::vector<Json> programs_;
  // The recorded contents of each buffer, by its id.
  std::map<uint64_t, std::vector<char>> expected_;
};

std::mutex mutex;
// The mutex protects `current` and `failure`.  `failure` is the first error.
// After an error, nothing more is recorded.
std::unique_ptr<Recording> current;
std::string failure;

// If there is a recording and no write has failed, passes the recording to
// `work`.
template <typename Work>
void WithRecording(Work work) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!current || !failure.empty()) return;
  try {
    work(current.get());
  } catch (const Failure &failed) {
    failure = failed.message;
  }
}

}  // namespace

void RecordBefore(const Command &command, char *const *device) {
  // Called without the lock, because describe() calls RecordProgram(), which
  // takes the lock.
  std::string description =
      command.describe ? command.describe() : Members({{"kind", "other"}});
  WithRecording([&](Recording *recording) {
    recording->Before(command, description, device);
  });
}

void RecordAfter(const Command &command, char *const *device) {
  WithRecording(
      [&](Recording *recording) { recording->After(command, device); });
}

size_t RecordProgram(const std::string &text, const std::string &members) {
  size_t ans = 0;
  WithRecording(
      [&](Recording *recording) { ans = recording->Program(text, members); });
  return ans;
}

}  // namespace mps_emulator

// Begins a recording.  Returns nullptr or, after a failure, the reason as a
// text that the caller must free.
MPS_EMULATOR_EXPORT char *mps_emulator_start_record(const char *folder) {
  using namespace mps_emulator;
  // Runs the commands that were encoded before the recording.
  {
    OperatorScope scope("the begin of a recording");
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (current) return strdup("another recording is under way");
  try {
    current = std::make_unique<Recording>(folder);
  } catch (const Failure &failed) {
    return strdup(failed.message.c_str());
  }
  failure.clear();
  is_recording = true;
  return nullptr;
}

// Runs all commands of torch's stream, ends the recording and writes the
// manifest.  Returns nullptr, or the reason why the recording is incomplete, as
// a text that the caller must free.
MPS_EMULATOR_EXPORT char *mps_emulator_stop_record() {
  using namespace mps_emulator;
  OperatorScope scope("the end of a recording");
  is_recording = false;
  WithRecording([](Recording *recording) { recording->Finish(); });
  std::lock_guard<std::mutex> lock(mutex);
  current = nullptr;
  return failure.empty() ? nullptr : strdup(failure.c_str());
}
