#include "msl/front_end.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "core/environment.h"
#include "core/export.h"
#include "msl/process.h"

namespace mps_emulator::msl {

namespace {

namespace fs = std::filesystem;

// The front end's exit status for a program that Metal's compiler would refuse.
// Any status but this one and 0 is a failure of the front end.
constexpr int kRefused = 10;

// From an address in this library, dladdr() finds the library's path.
const char address_in_this_library = 0;

fs::path DirectoryOfThisLibrary() {
  Dl_info info;
  if (dladdr(&address_in_this_library, &info) == 0 || info.dli_fname == nullptr)
    return {};
  return fs::absolute(info.dli_fname).parent_path();
}

std::string FindInPath(std::string_view name) {
  std::istringstream directories(Environment("PATH"));
  std::string directory;
  while (std::getline(directories, directory, ':')) {
    std::string candidate = directory + "/" + std::string(name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

// Returns the newest of the front end's target processors whose code this
// processor can run.
std::string Cpu() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    return "x86-64-v3";
  return "x86-64";
}

bool IsPartOfFrontEnd(const fs::path &path) {
  return std::find(path.begin(), path.end(), "__pycache__") == path.end();
}

std::string &DefaultPython() {
  static auto *path = new std::string("python3");
  return *path;
}

}  // namespace

FrontEnd::FrontEnd() : cpu_(Cpu()) {
  directory_ = Environment("MPS_EMULATOR_MSL_DIR");
  if (directory_.empty())
    directory_ = (DirectoryOfThisLibrary() / "msl").string();
  if (access((directory_ + "/__main__.py").c_str(), R_OK) != 0) {
    error_ = "the emulator's MSL front end is not in " + directory_ +
             ": reinstall the mps_emulator package, or set "
             "MPS_EMULATOR_MSL_DIR to the folder mps_emulator/msl";
    return;
  }

  python_ = Environment("MPS_EMULATOR_PYTHON");
  if (python_.empty()) python_ = DefaultPython();

  clang_ = Environment("MPS_EMULATOR_CLANG");
  if (clang_.empty()) clang_ = FindInPath("clang++-19");
  if (clang_.empty()) clang_ = FindInPath("clang++");
  struct stat compiler;
  if (clang_.empty() || stat(clang_.c_str(), &compiler) != 0) {
    error_ =
        "the emulator compiles Metal kernels with clang 19, which is not "
        "found: apt-get install clang-19 lld-19 libclang1-19, or set "
        "MPS_EMULATOR_CLANG to the path of its clang++";
    return;
  }

  std::vector<std::string> fields = {clang_, std::to_string(compiler.st_size),
                                     std::to_string(compiler.st_mtim.tv_sec),
                                     cpu_};
  std::vector<fs::path> files;
  for (const fs::directory_entry &entry :
       fs::recursive_directory_iterator(directory_)) {
    fs::path relative = entry.path().lexically_relative(directory_);
    if (entry.is_regular_file() && IsPartOfFrontEnd(relative))
      files.push_back(relative);
  }
  std::sort(files.begin(), files.end());
  for (const fs::path &file : files) {
    std::ifstream stream(directory_ / file, std::ios::binary);
    std::ostringstream content;
    content << stream.rdbuf();
    fields.push_back(file.string());
    fields.push_back(content.str());
  }
  identity_ = Key(fields);
}

std::string FrontEnd::Key(const std::vector<std::string> &fields) const {
  std::string text = identity_;
  for (const std::string &field : fields)
    text += std::to_string(field.size()) + ":" + field;
  return std::to_string(std::hash<std::string>()(text));
}

FrontEnd::Result FrontEnd::Build(const std::string &source, bool fast_math,
                                 bool report_accesses,
                                 const std::string &output,
                                 std::string *diagnostics) const {
  std::vector<std::string> command = {"build", source, "--output", output};
  if (!fast_math) command.push_back("--no-fast-math");
  return Run(std::move(command), report_accesses, diagnostics);
}

FrontEnd::Result FrontEnd::BuildMetallib(
    const std::string &path, const std::vector<std::string> &kernels,
    bool report_accesses, const std::string &output, const std::string &cache,
    std::string *diagnostics) const {
  std::vector<std::string> command = {"build-metallib", path,      "--output",
                                      output,           "--cache", cache};
  for (const std::string &kernel : kernels) {
    command.push_back("--kernel");
    command.push_back(kernel);
  }
  return Run(std::move(command), report_accesses, diagnostics);
}

FrontEnd::Result FrontEnd::Run(std::vector<std::string> command,
                               bool report_accesses,
                               std::string *diagnostics) const {
  command.insert(command.begin(), {python_, directory_ + "/__main__.py"});
  command.insert(command.end(), {"--clang", clang_, "--cpu", cpu_});
  if (report_accesses) command.push_back("--report-accesses");

  ProcessResult result = RunProcess(command);
  if (result.status == 0) return Result::kBuilt;
  if (result.status == kRefused) {
    *diagnostics = result.output;
    return Result::kRefused;
  }
  std::string line;
  for (const std::string &word : command) line += " " + word;
  *diagnostics =
      "the emulator's MSL front end failed; its command was:\n " + line +
      "\n(MPS_EMULATOR_PYTHON names the Python interpreter to use)\n" +
      result.output;
  return Result::kFailed;
}

}  // namespace mps_emulator::msl

// The Python package calls this function before the first compilation.  `path`
// is the package's interpreter, which has the packages that the front end
// needs.
MPS_EMULATOR_EXPORT void mps_emulator_use_python(const char *path) {
  mps_emulator::msl::DefaultPython() = path;
}
