#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <system_error>

#include "core/environment.h"
#include "msl/executor.h"
#include "msl/front_end.h"
#include "msl/msl.h"
#include "msl/race_checker.h"

namespace mps_emulator::msl {

namespace {

namespace fs = std::filesystem;

struct Outcome {
  std::shared_ptr<const Library> library;
  std::string diagnostics;  // set if there is no library
  bool is_refusal = false;  // Metal's compiler would refuse the source
};

// Returns the folder for compiled libraries: MPS_EMULATOR_CACHE_DIR, if it is
// set; else mps-emulator/msl in the user's cache folder, if the process can
// write there; else a folder of this user among the temporary files.
fs::path CacheDirectory() {
  if (std::string path = Environment("MPS_EMULATOR_CACHE_DIR"); !path.empty())
    return path;
  std::string root = Environment("XDG_CACHE_HOME");
  if (root.empty() && !Environment("HOME").empty())
    root = Environment("HOME") + "/.cache";
  std::error_code error;
  if (!root.empty()) {
    fs::path path = fs::path(root) / "mps-emulator" / "msl";
    fs::create_directories(path, error);
    if (access(path.c_str(), W_OK) == 0) return path;
  }
  return fs::temp_directory_path() /
         ("mps-emulator-" + std::to_string(getuid())) / "msl";
}

// Loads the file at `path`, a library that was compiled from `source`.  The
// library stays loaded until the process ends.  Returns nullptr and sets
// `*error` if the file is not a kernel library of this version of the emulator.
std::shared_ptr<const Library> LoadLibrary(const std::string &path,
                                           const std::string &source,
                                           bool fast_math, std::string *error) {
  // The library is never closed, because a command buffer that never runs may
  // refer to a kernel until the process ends.
  void *object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    *error = dlerror();
    return nullptr;
  }
  auto *module = static_cast<const mps_emulator_msl_module *>(
      dlsym(object, "mps_emulator_msl_description"));
  if (module == nullptr || module->abi_version != kMpsEmulatorMslAbiVersion) {
    *error = path + " is not a kernel library of this version of the emulator";
    dlclose(object);
    return nullptr;
  }
  *module->runtime = Runtime();
  return std::make_shared<Library>(
      Library{{module->kernels, module->kernel_count}, source, fast_math});
}

// Compiles `source` into the file `cached`.  If several processes compile the
// source at the same time, each process replaces the file of the process that
// finished before.
FrontEnd::Result Build(const FrontEnd &front_end, const std::string &source,
                       bool fast_math, bool check_races, const fs::path &cached,
                       std::string *diagnostics) {
  static std::atomic<unsigned> counter{0};
  std::string unique = cached.string() + "-" + std::to_string(getpid()) + "-" +
                       std::to_string(counter++);
  fs::path text = unique + ".metal";
  fs::path output = unique + ".so";
  std::ofstream stream(text, std::ios::binary);
  stream << source;
  stream.close();
  if (!stream) {
    fs::remove(text);
    throw fs::filesystem_error(
        "cannot write", text,
        std::make_error_code(std::errc::no_space_on_device));
  }
  FrontEnd::Result result = front_end.Build(
      text.string(), fast_math, check_races, output.string(), diagnostics);
  fs::remove(text);
  if (result == FrontEnd::Result::kBuilt)
    fs::rename(output, cached);
  else
    fs::remove(output);
  return result;
}

Outcome LoadOrBuild(const FrontEnd &front_end, const std::string &key,
                    const std::string &source, bool fast_math,
                    bool check_races) {
  Outcome outcome;
  try {
    fs::path cached = CacheDirectory() / key.substr(0, 2) / (key + ".so");
    if (fs::exists(cached)) {
      outcome.library =
          LoadLibrary(cached.string(), source, fast_math, &outcome.diagnostics);
      if (outcome.library != nullptr) return outcome;
      // The file is damaged, for example because the disk was full.  The code
      // below replaces the file.
      fs::remove(cached);
    }
    fs::create_directories(cached.parent_path());
    FrontEnd::Result result = Build(front_end, source, fast_math, check_races,
                                    cached, &outcome.diagnostics);
    if (result == FrontEnd::Result::kBuilt)
      outcome.library =
          LoadLibrary(cached.string(), source, fast_math, &outcome.diagnostics);
    outcome.is_refusal = result == FrontEnd::Result::kRefused;
  } catch (const std::exception &error) {
    outcome.diagnostics =
        std::string("compiling a Metal library: ") + error.what() +
        " (MPS_EMULATOR_CACHE_DIR names the folder for compiled libraries)";
  }
  return outcome;
}

// Keeps the outcome of each compilation, a library or diagnostics, so that a
// process compiles each source text once.
class ProcessCache {
 public:
  Outcome Get(const FrontEnd &front_end, const std::string &source,
              bool fast_math) {
    bool check_races = CheckRaces();
    std::string key = front_end.Key(
        {source, fast_math ? "fast" : "precise", check_races ? "races" : ""});
    std::promise<Outcome> promise;
    std::unique_lock<std::mutex> lock(mutex_);
    auto [place, added] =
        outcomes_.try_emplace(key, promise.get_future().share());
    std::shared_future<Outcome> future = place->second;
    // The compiler runs without the lock.
    lock.unlock();
    if (!added) return future.get();
    Outcome outcome =
        LoadOrBuild(front_end, key, source, fast_math, check_races);
    promise.set_value(outcome);
    lock.lock();
    // A failure is forgotten, because the next attempt may succeed, for example
    // if the disk was full.
    if (outcome.library == nullptr && !outcome.is_refusal) outcomes_.erase(key);
    return outcome;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_future<Outcome>> outcomes_;
};

}  // namespace

std::shared_ptr<const Library> Compile(const std::string &source,
                                       bool fast_math,
                                       std::string *diagnostics) {
  static const FrontEnd front_end;
  if (!front_end.error().empty()) {
    *diagnostics = front_end.error();
    return nullptr;
  }
  // Never destroyed, because a thread may compile while the process ends.
  static ProcessCache *cache = new ProcessCache;
  Outcome outcome = cache->Get(front_end, source, fast_math);
  if (outcome.library == nullptr) *diagnostics = outcome.diagnostics;
  return outcome.library;
}

}  // namespace mps_emulator::msl
