// Replaces torch::mps::synchronize(), which k2 calls to wait for the device
// before the host touches shared memory.  LD_PRELOAD loads this library.
//
// The site of a call is the first return address on the stack that is outside
// of the waiting code.  Calls at a dropped site return without a wait.  The
// library records calls that found work in flight.
//
// WAITS_COUNTER the index of the emulator's counter waits_with_work
// WAITS_DROP    the sites whose waits to leave out, "module offset" pairs
// WAITS_RECORD  the file to which the library adds lines "test module offset"
#include <dlfcn.h>
#include <execinfo.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

namespace {

// The beginning of the mangled name of RunInStream(), through which all waits
// of k2 go.  Functions that RunInStream() calls have no name, or a name with
// another beginning.
constexpr const char *kOutermost = "_ZN2k23mps11RunInStreamE";

// Parts of the names of functions that wait on behalf of a caller.  The site is
// the caller's line.
constexpr const char *kWaiting[] = {"11SynchronizeEv", "14SynchronizeNowEv",
                                    "12SyncIfOnHostEv", "4SyncEv",
                                    "10MpsHostPtr"};

struct Site {
  std::string module;   // the file name of the library
  uint64_t offset = 0;  // the offset of the return address in the library

  bool operator<(const Site &other) const {
    return std::tie(offset, module) < std::tie(other.offset, other.module);
  }
};

std::string Variable(const char *name) {
  const char *value = getenv(name);
  return value == nullptr ? "" : value;
}

struct State {
  std::mutex mutex;
  std::set<Site> dropped;
  std::string test;         // the test that runs in this process
  std::set<Site> recorded;  // the sites of this test
  std::ofstream record{Variable("WAITS_RECORD"), std::ios::app};

  State() {
    std::istringstream sites(Variable("WAITS_DROP"));
    for (Site site; sites >> site.module >> site.offset;) dropped.insert(site);
  }
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

// Finds the site of the call.  Returns false if torch or a user made the call,
// so that no frame of the stack is in a library of k2.
bool FindSite(Site *site) {
  void *frames[48];
  int num_frames = backtrace(frames, 48);
  bool inside = false;  // inside k2's waiting code
  for (int i = 1; i < num_frames; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    const char *slash = strrchr(info.dli_fname, '/');
    const char *file = slash == nullptr ? info.dli_fname : slash + 1;
    bool is_k2 = strncmp(file, "libk2", 5) == 0 || strncmp(file, "_k2", 3) == 0;
    if (!is_k2) continue;
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
  // torch loads libmps_emulator.so after this library.
  static auto counters = reinterpret_cast<unsigned (*)(uint64_t *, unsigned)>(
      dlsym(dlopen("libmps_emulator.so", RTLD_LAZY | RTLD_NOLOAD),
            "mps_emulator_counters"));
  static const unsigned index = std::stoul(Variable("WAITS_COUNTER"));
  std::vector<uint64_t> values(index + 1);
  counters(values.data(), index + 1);
  return values[index];
}

}  // namespace

namespace torch::mps {

__attribute__((visibility("default"))) void synchronize() {
  static auto real = reinterpret_cast<void (*)()>(
      dlsym(RTLD_NEXT, "_ZN5torch3mps11synchronizeEv"));
  State &state = GetState();
  Site site;
  if (!state.dropped.empty() && FindSite(&site) &&
      state.dropped.count(site) != 0)
    return;
  uint64_t before = WaitsWithWork();
  real();
  if (WaitsWithWork() != before && FindSite(&site)) {
    std::lock_guard<std::mutex> lock(state.mutex);
    if (!state.test.empty() && state.recorded.insert(site).second)
      state.record << state.test << ' ' << site.module << ' ' << site.offset
                   << std::endl;
  }
}

}  // namespace torch::mps

// plugin.py calls this function when a test begins.
extern "C" void waits_test(const char *name) {
  State &state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.test = name;
  state.recorded.clear();
}
