#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/environment.h"
#include "msl/executor.h"
#include "msl/front_end.h"
#include "msl/msl.h"
#include "msl/validator.h"

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

// Compiles a library into the file `output`.
using Compiler = std::function<FrontEnd::Result(const fs::path &output,
                                                std::string *diagnostics)>;

// Returns a path in the cache for a file that is not complete yet.
fs::path Draft(const fs::path &cached, const char *extension) {
  static std::atomic<unsigned> counter{0};
  return cached.string() + "-" + std::to_string(getpid()) + "-" +
         std::to_string(counter++) + extension;
}

void Write(const fs::path &path, std::string_view content) {
  std::ofstream stream(path, std::ios::binary);
  stream << content;
  stream.close();
  if (!stream) {
    fs::remove(path);
    throw fs::filesystem_error(
        "cannot write", path,
        std::make_error_code(std::errc::no_space_on_device));
  }
}

// Compiles into the file `cached`.  If several processes compile the same
// library at the same time, each process replaces the file of the process that
// finished before.
FrontEnd::Result Build(const Compiler &compiler, const fs::path &cached,
                       std::string *diagnostics) {
  fs::path output = Draft(cached, ".so");
  FrontEnd::Result result = compiler(output, diagnostics);
  if (result == FrontEnd::Result::kBuilt)
    fs::rename(output, cached);
  else
    fs::remove(output);
  return result;
}

Outcome LoadOrBuild(const std::string &key, const std::string &source,
                    bool fast_math, const Compiler &compiler) {
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
    FrontEnd::Result result = Build(compiler, cached, &outcome.diagnostics);
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
// process compiles each library once.
class ProcessCache {
 public:
  // Never destroyed, because a thread may compile while the process ends.
  static ProcessCache &Get() {
    static auto *cache = new ProcessCache;
    return *cache;
  }

  Outcome Compile(const std::string &key, const std::string &source,
                  bool fast_math, const Compiler &compiler) {
    std::promise<Outcome> promise;
    std::unique_lock<std::mutex> lock(mutex_);
    auto [place, added] =
        outcomes_.try_emplace(key, promise.get_future().share());
    std::shared_future<Outcome> future = place->second;
    // The compiler runs without the lock.
    lock.unlock();
    if (!added) return future.get();
    Outcome outcome = LoadOrBuild(key, source, fast_math, compiler);
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

const FrontEnd &TheFrontEnd() {
  static const FrontEnd front_end;
  return front_end;
}

}  // namespace

std::shared_ptr<const Library> Compile(const std::string &source,
                                       bool fast_math,
                                       std::string *diagnostics) {
  const FrontEnd &front_end = TheFrontEnd();
  if (!front_end.error().empty()) {
    *diagnostics = front_end.error();
    return nullptr;
  }
  const bool report_accesses = ReportsAccesses();
  std::string key = front_end.Key({source, fast_math ? "fast" : "precise",
                                   report_accesses ? "reports" : ""});
  Outcome outcome = ProcessCache::Get().Compile(
      key, source, fast_math, [&](const fs::path &output, std::string *out) {
        fs::path text = output.string() + ".metal";
        Write(text, source);
        FrontEnd::Result result = front_end.Build(
            text.string(), fast_math, report_accesses, output.string(), out);
        fs::remove(text);
        return result;
      });
  if (outcome.library == nullptr) *diagnostics = outcome.diagnostics;
  return outcome.library;
}

std::shared_ptr<const Metallib> LoadMetallib(std::string_view content,
                                             std::string *diagnostics) {
  // The header ends with the places of the parts, and has the content's size.
  constexpr size_t kHeader = 88, kSizeAt = 16;
  uint64_t size = 0;
  if (content.size() >= kHeader)
    memcpy(&size, content.data() + kSizeAt, sizeof(size));
  if (!content.starts_with("MTLB") || size < kHeader || size > content.size()) {
    *diagnostics = "Invalid library file: the data is not a Metal library";
    return nullptr;
  }
  auto metallib = std::make_shared<Metallib>();
  metallib->key = std::to_string(std::hash<std::string_view>()(content)) + "-" +
                  std::to_string(content.size());
  try {
    fs::path path =
        CacheDirectory() / "metallib" / (metallib->key + ".metallib");
    metallib->path = path.string();
    if (!fs::exists(path)) {
      fs::create_directories(path.parent_path());
      fs::path draft = Draft(path, "");
      Write(draft, content);
      fs::rename(draft, path);
    }
  } catch (const std::exception &error) {
    *diagnostics = std::string("keeping a Metal library: ") + error.what();
    return nullptr;
  }
  return metallib;
}

std::shared_ptr<const Library> CompileKernels(
    const Metallib &metallib, const std::vector<std::string> &kernels,
    std::string *diagnostics, bool *missing) {
  const FrontEnd &front_end = TheFrontEnd();
  *missing = false;
  if (!front_end.error().empty()) {
    *diagnostics = front_end.error();
    return nullptr;
  }
  const bool report_accesses = ReportsAccesses();
  std::vector<std::string> fields = {metallib.key,
                                     report_accesses ? "reports" : ""};
  fields.insert(fields.end(), kernels.begin(), kernels.end());
  Outcome outcome = ProcessCache::Get().Compile(
      front_end.Key(fields), "", false,
      [&](const fs::path &output, std::string *out) {
        return front_end.BuildMetallib(metallib.path, kernels, report_accesses,
                                       output.string(),
                                       CacheDirectory().string(), out);
      });
  *missing = outcome.is_refusal;
  if (outcome.library == nullptr) *diagnostics = outcome.diagnostics;
  return outcome.library;
}

}  // namespace mps_emulator::msl
