// Replaces torch::mps::synchronize(), with which k2 waits for the device before
// the host touches its memory.  Loaded with LD_PRELOAD.
//
// The site of a call is the first return address on the stack outside of the
// waiting code.  Calls at a dropped site return without a wait.  The library
// records calls that found work in flight.
#include <dlfcn.h>
#include <execinfo.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace {

// The index of waits_with_work in mps_emulator/_counters.py.
constexpr unsigned kWaitsWithWork = 3;

// The beginning of the mangled name of k2's function for all waits.  The functions
// that it calls have no name, or another beginning.
constexpr const char *kOutermost = "_ZN2k23mps11RunInStreamE";

// Parts of the names of functions between the wait and the code that asks for it.
constexpr const char *kWaiting[] = {"11SynchronizeEv", "12SyncIfOnHostEv",
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

// False if the stack has no library of k2: torch or a user made the call.
bool FindSite(Site *site) {
  void *frames[48];
  int num_frames = backtrace(frames, 48);
  bool inside = false;  // inside k2's waiting code
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
  // torch loads this library later.
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
  // The plugin drops sites before the first test.
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

// The interface for plugin.py.
extern "C" {

void waits_drop(const char *module, uint64_t offset) {
  State &state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.dropped.insert({module, offset});
}

uint64_t waits_num_dropped() { return GetState().num_dropped; }

// Writes the sites recorded since the last call as lines "module offset", and
// clears the record.  Returns the number of bytes; if it is more than `size`, the
// function writes nothing.
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
