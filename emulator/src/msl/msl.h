// The Metal Shading Language (MSL) part of the emulator, which needs neither
// torch nor Objective-C.  This part compiles a source text to a library of
// kernels, and runs a dispatch of a kernel on the host CPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/byte_ranges.h"
#include "core/device_range.h"
#include "implementation/abi.h"

namespace mps_emulator::msl {

// The limits of the emulated GPU are the limits of Apple's GPUs from family
// Apple7 on.
inline constexpr unsigned kMaxBuffers = kMpsEmulatorMslMaxBuffers;
inline constexpr unsigned kMaxThreadsPerThreadgroup = 1024;
inline constexpr unsigned kMaxThreadgroupBytes = 32768;
inline constexpr unsigned kSimdWidth = 32;

// abi.h documents the members.
using Kernel = mps_emulator_msl_kernel;
using Parameter = mps_emulator_msl_parameter;

// Returns the parameters of a kernel, in the order of their declarations.
inline std::span<const Parameter> ParametersOf(const Kernel &kernel) {
  return {kernel.parameters, kernel.parameter_count};
}

// A compiled program.
struct Library {
  std::span<const Kernel> kernels;
  std::string source;
  bool fast_math;

  // Returns nullptr if the library has no kernel `name`.
  const Kernel *Find(std::string_view name) const {
    for (const Kernel &kernel : kernels)
      if (kernel.name == name) return &kernel;
    return nullptr;
  }
};

// Compiles `source`.  If Metal's compiler would refuse the source, returns
// nullptr and sets `*diagnostics` to the compiler's text, with lines like
// `program_source:LINE:COL: error:`.  Keeps the results, on disk and in the
// process, so that each source is compiled only once.  Thread-safe.
std::shared_ptr<const Library> Compile(const std::string &source,
                                       bool fast_math,
                                       std::string *diagnostics);

// A library that Apple's compiler has compiled, a .metallib.
struct Metallib {
  std::string path;  // a copy in the folder of compiled libraries
  std::string key;   // tells the content from the content of other libraries
};

// Reads the content of a file .metallib.  Returns nullptr and sets
// `*diagnostics` if the content is something else.
std::shared_ptr<const Metallib> LoadMetallib(std::string_view content,
                                             std::string *diagnostics);

// Compiles kernels of a .metallib for the host.  On failure, returns nullptr
// and sets `*diagnostics`, and sets `*missing` to whether the .metallib has no
// kernel of one of these names.  Keeps the results as Compile() does.
std::shared_ptr<const Library> CompileKernels(
    const Metallib &metallib, const std::vector<std::string> &kernels,
    std::string *diagnostics, bool *missing);

struct Binding {
  void *data = nullptr;  // nullptr: nothing is bound
  size_t size = 0;       // bytes from `data` to the end of the buffer
};

struct Dispatch {
  std::shared_ptr<const Library> library;  // keeps `kernel` alive
  const Kernel *kernel = nullptr;
  std::array<Binding, kMaxBuffers> buffers;
  std::array<size_t, kMaxBuffers> threadgroup_bytes{};
  std::array<uint32_t, 3> grid{1, 1, 1};         // in threads
  std::array<uint32_t, 3> threadgroup{1, 1, 1};  // in threads
  std::string label;  // the label of the encoder, for messages; may be empty
  // If consecutive dispatches have the same number, the dispatches can run at
  // the same time on a Mac.  0: the dispatch runs alone.
  uint64_t concurrent_group = 0;
  // Memory [begin, end) that the host wrote after the commit of the dispatch's
  // command buffer; nullptr: none.
  const std::vector<std::pair<const char *, const char *>> *host_writes =
      nullptr;
  // If races are checked, receives the addresses of the device memory that the
  // kernel reads and writes.  nullptr: the caller does not need them.
  std::optional<Accesses> *accesses = nullptr;
  // Buffers whose addresses the program asked for.  The kernel may access the
  // buffers in `resident`, and must not access the buffers in `absent`.
  std::vector<DeviceRange> resident;
  std::vector<DeviceRange> absent;
};

// Runs all threads of the dispatch on the calling thread.  Threadgroups at the
// grid's edge can be partial, as with Metal's dispatchThreads.  Calls Fatal()
// (core/fatal.h) for behaviour that is undefined on a GPU, such as an unbound
// buffer, a barrier that some threads do not reach, or an access outside of a
// buffer (but see validator.h).  A handler of Fatal() may throw an exception
// out of Run().
//
// The environment variable MPS_EMULATOR_SCHEDULE chooses the order in which
// threads and threadgroups run: forward (the default), reverse or random:SEED.
void Run(const Dispatch &dispatch);

}  // namespace mps_emulator::msl
