// Stands in front of torch::mps::synchronize(), by which k2 waits for the
// device before the host touches its memory.  Loaded with LD_PRELOAD.
//
// Each call is told by its site: the first return address on the stack that is
// not part of the waiting itself.  Sites can be dropped, which makes their
// calls return without waiting; calls that found work in flight are recorded.
#include <dlfcn.h>
#include <execinfo.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace {

// The place in mps_emulator/_counters.py of waits_with_work.
constexpr unsigned kWaitsWithWork = 3;

// How the compiler begins the name of the function in which k2 does all of its
// waiting.  What that calls has no name, or one that begins otherwise.
constexpr const char *kOutermost = "_ZN2k23mps11RunInStreamE";

// Parts of the names of what lies between it and the code that wanted to wait.
constexpr const char *kWaiting[] = {"11SynchronizeEv", "11WaitForHostEv",
                                    "4SyncEv", "10MpsHostPtr"};

struct Site {
  std::string module;   // the file name of the library
  uint64_t offset = 0;  // of the return address in it

  bool operator<(const Site &other) const {
    return offset != other.offset ? offset < other.offset
                                  : module < other.module;
  }
};

struct State {
  std::mutex mutex;
  std::set<Site> dropped;
  std::set<Site> recorded;
  std::atomic<uint64_t> num_dropped{0};  // calls
};

State &GetState() {
  static auto *state = new State;
  return *state;
}

bool IsWaiting(const char *symbol) {
  for (const char *name : kWaiting)
    if (strstr(symbol, name) != nullptr) return true;
  return false;
}

// False if no library of k2 is on the stack: the call is torch's or a user's.
bool FindSite(Site *site) {
  void *frames[48];
  int num_frames = backtrace(frames, 48);
  bool inside = false;  // of k2's code that waits, or wants to
  for (int i = 1; i < num_frames; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    const char *slash = strrchr(info.dli_fname, '/');
    const char *file = slash == nullptr ? info.dli_fname : slash + 1;
    bool of_k2 = strncmp(file, "libk2", 5) == 0 || strncmp(file, "_k2", 3) == 0;
    if (!of_k2) continue;
    const char *symbol = info.dli_sname != nullptr ? info.dli_sname : "";
    if (strncmp(symbol, kOutermost, strlen(kOutermost)) == 0) {
      inside = true;
      continue;
    }
    if (!inside || IsWaiting(symbol)) continue;
    site->module = file;
    site->offset = reinterpret_cast<uint64_t>(frames[i]) -
                   reinterpret_cast<uint64_t>(info.dli_fbase);
    return true;
  }
  return false;
}

uint64_t WaitsWithWork() {
  // Loaded by torch, after this library.
  static auto counters = reinterpret_cast<unsigned (*)(uint64_t *, unsigned)>(
      dlsym(dlopen("libmps_emulator.so", RTLD_LAZY | RTLD_NOLOAD),
            "mps_emulator_counters"));
  uint64_t values[kWaitsWithWork + 1] = {};
  counters(values, kWaitsWithWork + 1);
  return values[kWaitsWithWork];
}

}  // namespace

namespace torch::mps {

__attribute__((visibility("default"))) void synchronize() {
  static auto real = reinterpret_cast<void (*)()>(
      dlsym(RTLD_NEXT, "_ZN5torch3mps11synchronizeEv"));
  State &state = GetState();
  Site site;
  // Sites are dropped before the first test runs.
  if (!state.dropped.empty() && FindSite(&site) &&
      state.dropped.count(site) != 0) {
    ++state.num_dropped;
    return;
  }
  uint64_t before = WaitsWithWork();
  real();
  if (WaitsWithWork() != before && FindSite(&site)) {
    std::lock_guard<std::mutex> lock(state.mutex);
    state.recorded.insert(site);
  }
}

}  // namespace torch::mps

// What waits.py calls.
extern "C" {

void waits_drop(const char *module, uint64_t offset) {
  State &state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.dropped.insert({module, offset});
}

uint64_t waits_num_dropped() { return GetState().num_dropped; }

// Writes the sites recorded since the last call as lines "module offset" and
// forgets them.  Returns the number of bytes needed; writes nothing if that is
// more than `size`.
uint64_t waits_take(char *text, uint64_t size) {
  State &state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  std::string lines;
  for (const Site &site : state.recorded)
    lines += site.module + " " + std::to_string(site.offset) + "\n";
  if (lines.size() + 1 > size) return lines.size() + 1;
  memcpy(text, lines.c_str(), lines.size() + 1);
  state.recorded.clear();
  return lines.size() + 1;
}
}
