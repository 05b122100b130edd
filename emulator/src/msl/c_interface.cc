// A C interface to the compiler and the executor, for the replay and for tests.
// Kernels run on plain memory, without torch and without Metal's objects.
// mps_emulator/msl/native.py calls these functions.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/export.h"
#include "core/fatal.h"
#include "msl/msl.h"

namespace msl = mps_emulator::msl;

namespace {

using LibraryHandle = std::shared_ptr<const msl::Library>;

// ThrowMessage(), a handler of Fatal(), throws a FatalMessage, so that the
// process goes on.
struct FatalMessage {
  std::string text;
};

void ThrowMessage(const char *message) { throw FatalMessage{message}; }

void Store(const std::string &text, char *out, size_t size) {
  size_t length = std::min(text.size(), size - 1);
  memcpy(out, text.data(), length);
  out[length] = 0;
}

}  // namespace

// Returns a library that mps_emulator_msl_release() frees.  If the source does
// not compile, returns nullptr and writes the diagnostics to `message`.
MPS_EMULATOR_EXPORT LibraryHandle *mps_emulator_msl_compile(
    const char *source, uint64_t source_size, bool fast_math, char *message,
    uint64_t message_size) {
  std::string diagnostics;
  auto library =
      msl::Compile(std::string(source, source_size), fast_math, &diagnostics);
  Store(diagnostics, message, message_size);
  return library == nullptr ? nullptr : new LibraryHandle(library);
}

// Compiles the kernels with the names `kernels`, each with a newline after it,
// of a .metallib.  The result and `message` are those of
// mps_emulator_msl_compile().
MPS_EMULATOR_EXPORT LibraryHandle *mps_emulator_msl_compile_metallib(
    const char *content, uint64_t size, const char *kernels, char *message,
    uint64_t message_size) {
  std::vector<std::string> names;
  std::istringstream lines(kernels);
  for (std::string name; std::getline(lines, name);) names.push_back(name);
  std::string diagnostics;
  std::shared_ptr<const msl::Library> library;
  bool missing = false;
  if (auto metallib = msl::LoadMetallib({content, size}, &diagnostics))
    library = msl::CompileKernels(*metallib, names, &diagnostics, &missing);
  Store(diagnostics, message, message_size);
  return library == nullptr ? nullptr : new LibraryHandle(library);
}

MPS_EMULATOR_EXPORT void mps_emulator_msl_release(LibraryHandle *library) {
  delete library;
}

// Runs a kernel.  Returns 0; or 1 after a call of Fatal(), whose text is then
// in `message`; or 2 if the library has no such kernel.  `buffers`,
// `buffer_sizes` and `threadgroup_bytes` have kMaxBuffers elements each.  The
// sizes are in bytes.  `grid` and `threadgroup` have three elements, in
// threads.
MPS_EMULATOR_EXPORT int mps_emulator_msl_run(
    const LibraryHandle *library, const char *kernel,
    const void *const *buffers, const uint64_t *buffer_sizes,
    const uint64_t *threadgroup_bytes, const uint32_t *grid,
    const uint32_t *threadgroup, char *message, uint64_t message_size) {
  msl::Dispatch dispatch;
  dispatch.library = *library;
  dispatch.kernel = (*library)->Find(kernel);
  if (dispatch.kernel == nullptr) return 2;
  for (unsigned i = 0; i < msl::kMaxBuffers; ++i) {
    dispatch.buffers[i] = {const_cast<void *>(buffers[i]), buffer_sizes[i]};
    dispatch.threadgroup_bytes[i] = threadgroup_bytes[i];
  }
  for (int d = 0; d < 3; ++d) {
    dispatch.grid[d] = grid[d];
    dispatch.threadgroup[d] = threadgroup[d];
  }
  mps_emulator::FatalHandler before =
      mps_emulator::SetFatalHandler(ThrowMessage);
  int status = 0;
  try {
    msl::Run(dispatch);
  } catch (const FatalMessage &fatal) {
    Store(fatal.text, message, message_size);
    status = 1;
  }
  mps_emulator::SetFatalHandler(before);
  return status;
}
