// The Metal Shading Language (MSL) half of the emulator: compiling a source
// text to a library of kernels and running one dispatch of a kernel on the
// host CPU.  It knows nothing of torch and nothing of Objective-C.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mps_emulator::msl {

// Limits of the emulated GPU, those of Apple's GPUs from family Apple7 on.
inline constexpr unsigned kMaxBuffers = 31;
inline constexpr unsigned kMaxThreadsPerThreadgroup = 1024;
inline constexpr unsigned kMaxThreadgroupBytes = 32768;
inline constexpr unsigned kSimdWidth = 32;

// One parameter of a kernel, in declaration order.
struct Parameter {
  enum class Kind { kBuffer, kThreadgroup, kBuiltin };
  Kind kind;
  std::string name;
  unsigned index = 0;         // of [[buffer(i)]] or [[threadgroup(i)]]
  bool writable = false;      // a `device` pointer or reference to non-const
  bool by_reference = false;  // `T &`: one whole element has to be bound
  // False: a function constant takes the parameter away, nothing is bound.
  bool active = true;
  bool constant = false;    // in `constant` memory
  size_t element_size = 0;  // bytes of the pointee
  size_t alignment = 1;     // of the pointee
};

// A program-scope constant with [[function_constant(index)]] that a kernel
// uses, directly or through functions and other constants.
struct FunctionConstant {
  std::string name;
  std::string type;  // as in MSL, e.g. "bool", "uint", "float4"
  unsigned index = 0;
  bool defined = false;  // this library was compiled with a value for it
};

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<FunctionConstant> function_constants;
  unsigned static_threadgroup_bytes = 0;
  unsigned max_total_threads = kMaxThreadsPerThreadgroup;
  // Set by the front end: the kernel can reach a barrier or a simdgroup
  // operation, so its threads must be suspendable.
  bool needs_fibers = false;
  void *entry = nullptr;
};

// The value of a function constant, by index or, where `name` is not empty, by
// name.  `bytes` is the value as the constant's type holds it in memory (bool:
// one byte, float3: 12 or 16 bytes).
struct FunctionConstantValue {
  std::string name;
  unsigned index = 0;
  std::string bytes;
};

struct CompileOptions {
  bool fast_math = true;  // Metal's default
  // MTLCompileOptions.languageVersion as major * 65536 + minor; 0: newest
  uint32_t language_version = 0;
  // MTLCompileOptions.preprocessorMacros as (name, value)
  std::vector<std::pair<std::string, std::string>> macros;
  // What newFunctionWithName:constantValues: was given.  A specialised function
  // is the function of that name in the library that the same source compiled
  // with these values gives.  Values for constants that the source does not
  // have are ignored, as Metal ignores them.
  std::vector<FunctionConstantValue> function_constants;
};

class Library {
 public:
  virtual ~Library() = default;
  virtual const std::vector<Kernel> &kernels() const = 0;
  // Returns nullptr if there is no such kernel.
  virtual const Kernel *Find(std::string_view name) const = 0;
  // The program and the options that the library was compiled from.
  virtual const std::string &source() const = 0;
  virtual const CompileOptions &options() const = 0;
};

// Compiles `source`.  Returns nullptr and sets `*diagnostics` to the
// compiler's text (with lines of the form `program_source:LINE:COL: error:`)
// where Metal's compiler would refuse it.  Results are cached by content,
// on disk and in the process.  Thread-safe.
std::shared_ptr<const Library> Compile(const std::string &source,
                                       const CompileOptions &options,
                                       std::string *diagnostics);

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
  std::string label;  // the encoder's label, for messages; may be empty
  // Dispatches with the same number, other than 0, that run one after another
  // here may run at the same time on a Mac.
  uint64_t concurrent_group = 0;
  // Memory [begin, end) that the host wrote while the dispatch was in flight.
  const std::vector<std::pair<const char *, const char *>> *host_writes =
      nullptr;
};

// Runs every thread of the dispatch to its end, on the calling thread.
// Threadgroups at the grid's edge are partial where grid is not a multiple of
// threadgroup, as with Metal's dispatchThreads.  Calls Fatal() (core/fatal.h)
// with one clear line on what is undefined on a GPU: an unbound buffer, a
// barrier that some threads do not reach, an access outside a buffer, ...
// A handler of Fatal() may leave Run() by an exception: the next call finds
// everything in order.
//
// The environment variable MPS_EMULATOR_SCHEDULE chooses the order in which
// threads and threadgroups run: forward (the default), reverse or random:SEED.
void Run(const Dispatch &dispatch);

// The dispatch that the calling thread runs at the moment, nullptr if none.
// Safe in a signal handler.
const Dispatch *RunningDispatch();

// Whether `address` lies below the stack of one of the kernel threads that the
// calling thread runs: the kernel used more stack than the emulator gives it
// (256 KiB a thread).  Safe in a signal handler.
bool IsKernelStackOverflow(const void *address);

}  // namespace mps_emulator::msl
