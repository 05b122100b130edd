// Runs the threads of a dispatch, one threadgroup after another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/poison.h"
#include "msl/fiber.h"
#include "msl/msl.h"
#include "msl/race_checker.h"
#include "msl/schedule.h"
#include "msl/validator.h"
#include "msl/watchdog.h"

namespace mps_emulator::msl {

// The size of an executor's threadgroup memory: Metal's limit, and as much
// again to align the pieces.
inline constexpr size_t kMemoryBytes = 2 * kMaxThreadgroupBytes;
inline constexpr size_t kMemoryAlignment = 256;
inline constexpr size_t kVariableAlignment = 16;
// The size of the zone after each threadgroup buffer of the encoder.  The
// kernel must not write to this zone.
inline constexpr size_t kRedzone = 64;

inline size_t AlignUp(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Returns the source line of the call `site`, at which a thread waits.
inline unsigned LineOf(uint64_t site) {
  return static_cast<unsigned>(site >> 32);
}

// Each host thread that runs dispatches has an executor, which keeps the
// fibers' stacks between dispatches.
class Executor {
 public:
  // Returns this thread's executor, which the first call creates.
  static Executor &OfThisThread();
  // Returns this thread's executor, or nullptr if the thread has none.  A
  // signal handler may call the function.
  static const Executor *OfThisThreadOrNull();

  Executor();

  // Runs all threads of a dispatch.  The caller must have checked the
  // dispatch's buffers (run.cc) and sizes.
  void Run(const Dispatch &dispatch);

  // Returns the dispatch that Run() is running; nullptr outside of Run().
  const Dispatch *dispatch() const { return dispatch_; }
  const FiberStacks &stacks() const { return stacks_; }
  // Returns the race checker's first finding in this dispatch; nullptr if there
  // is none.
  const char *failure() const {
    return checker_ == nullptr || checker_->failure().empty()
               ? nullptr
               : checker_->failure().c_str();
  }
  // Returns how many threadgroups have run, in all dispatches.
  uint64_t progress() const { return progress_; }
  // Returns the running threadgroup's position in the grid, in threadgroups.
  const unsigned (&threadgroup_position() const)[3] {
    return launch_.threadgroup_position;
  }

 private:
  // An exchange is a simdgroup function that gets values from other lanes, such
  // as simd_shuffle.  In the state kAtExchange, a thread waits in an exchange.
  enum class State : uint8_t {
    kReady,
    kAtBarrier,
    kAtExchange,
    kFinished,
  };

  // One thread of the threadgroup that is running.
  struct Thread {
    FiberContext context = nullptr;
    uint64_t site = 0;            // the call in which the thread waits
    unsigned barrier_flags = 0;   // mem_flags of the threadgroup_barrier
    const void *value = nullptr;  // the thread's value in an exchange
    unsigned value_size = 0;
    unsigned active = 0;  // the active lanes of the exchange
    uint16_t x = 0;       // the thread's position in the threadgroup
    uint16_t y = 0;
    uint16_t z = 0;
    State state = State::kReady;
  };

  struct Call {
    uint64_t site;
    uint64_t hash;  // of the sites of this call and of the calls around it
  };

  // The nested function calls that led a thread from the kernel to the thread's
  // present place, the outermost call first.
  struct CallPath {
    std::vector<Call> calls;

    uint64_t Hash() const;
    void Enter(uint64_t site);
    void Leave() { calls.pop_back(); }
  };

  struct alignas(64) ExchangeBuffer {
    char bytes[kSimdWidth * 64];
  };

  // Sets the sizes and the buffers of launch_.
  void DescribeLaunch();
  void PlaceThreadgroupBuffers();
  // Makes the race checker and the validator ready, if they are on.
  void BeginChecks();
  // Makes sure that each thread of a threadgroup has a stack.
  void ReserveFibers();
  // Runs the threadgroups, in the order of the schedule.
  void RunThreadgroups();
  // Calls Fatal() if the kernel wrote past the end of a threadgroup buffer.
  void CheckThreadgroupBuffers() const;
  void RunThreadgroup(uint32_t x, uint32_t y, uint32_t z);
  void RunAsLoop();
  void RunOnFibers();
  void StartFibers();

  // Runs the ready threads of a simdgroup until each waits or has finished.
  void RunSimdgroup(unsigned simdgroup);
  // Called when no thread of the simdgroup is ready.  If threads wait in
  // exchanges, completes the exchange whose call comes first in the source.
  void CompleteExchange(unsigned simdgroup);
  // Lets all threads continue after the barrier at which they wait.  Calls
  // Fatal() if a thread does not wait at that barrier.
  void CompleteBarrier();
  [[noreturn]] void FailAtBarrier();

  // Whether two threads wait at the same call, and reached that call through
  // the same function calls.
  bool AtSamePlace(unsigned a, unsigned b) const;
  // Whether, in the source, the call at which thread `a` waits comes before the
  // call at which thread `b` waits.
  bool IsBefore(unsigned a, unsigned b) const;
  // Returns, for example, "line 12, called in line 34".
  std::string DescribePlace(unsigned thread) const;

  // Called on a fiber: runs other fibers, and returns when this fiber is
  // resumed.
  void Suspend();
  static void FiberMain();

  // The functions of mps_emulator_msl_runtime.
  static unsigned ThreadIndex();
  static void ThreadgroupBarrier(unsigned flags, unsigned long site);
  static const void *SimdgroupExchange(const void *value, unsigned size,
                                       unsigned long site,
                                       mps_emulator_msl_lanes *lanes);
  static void *ThreadgroupVariable(unsigned slot, unsigned long size,
                                   unsigned long alignment);
  static void EnterCall(unsigned long site);
  static void LeaveCall();
  static void Access(const void *address, unsigned long size, unsigned flags,
                     const void *place);
  static void Fence(unsigned flags);
  static void SimdgroupBarrier(unsigned flags);
  static void InactiveLane(unsigned lane, unsigned long site);
  static void OutsideArray(const char *type, long index, unsigned line);
  static void OutsideInteger(float value, const char *type, unsigned line);
  Thread &RunningFiber(const char *operation);
  // Returns the index of the running thread in its threadgroup.  Without
  // fibers, the index is right only if kernels report their accesses.
  unsigned RunningThread() const;
  // Whether `address` is on a stack of a kernel's threads.
  bool IsOnStack(const void *address) const;
  // Whether `address` is in the buffers from which simdgroup functions copy.
  bool IsExchanged(const void *address) const;

  const Dispatch *dispatch_ = nullptr;
  const Kernel *kernel_ = nullptr;
  mps_emulator_msl_launch launch_;
  Schedule schedule_;
  Watchdog watchdog_{this};
  unsigned thread_count_ = 0;       // the threads of the running threadgroup
  volatile uint64_t progress_ = 0;  // read by signal handlers

  FiberStacks stacks_;
  std::vector<Thread> threads_;
  std::vector<CallPath> paths_;  // paths_[i] belongs to threads_[i]
  unsigned started_ = 0;         // how many fibers have been started
  FiberContext main_context_ = nullptr;
  Thread *running_ = nullptr;  // nullptr while the main context runs
  unsigned unfinished_ = 0;

  // The threads that RunSimdgroup() runs, in the order in which they run.  The
  // threads from index order_next_ on have not run yet.
  std::array<uint16_t, kSimdWidth> order_;
  unsigned order_size_ = 0;
  unsigned order_next_ = 0;

  // One buffer for each simdgroup.
  std::unique_ptr<ExchangeBuffer[]> exchange_buffers_;

  // Threadgroup memory: first the buffers that the encoder sets, then the
  // kernel's variables in the order of their first use.
  std::unique_ptr<char[]> memory_;
  char *memory_begin_ = nullptr;
  size_t memory_used_ = 0;
  std::vector<ThreadgroupPiece> pieces_;  // the parts that the kernel may use
  std::vector<void *> variables_;

  // The members below are used only if kernels report their accesses.
  std::unique_ptr<RaceChecker> checker_;   // nullptr: races are not checked
  std::unique_ptr<Validator> validator_;   // nullptr: shaders are not validated
  const void *outermost_frame_ = nullptr;  // the frame of Run()
  unsigned looping_thread_ = 0;  // the running thread, if there are no fibers

  friend struct RuntimeTable;
};

// This thread's executor, or nullptr.  Signal handlers read the pointer too.
extern constinit thread_local Executor *executor
    __attribute__((tls_model("initial-exec")));

// After this call, a fault of the calling thread in a dispatch prints a message
// and ends the process.  A fault is an access outside of the kernel's memory,
// or an integer division whose result is undefined.  The first call installs
// the process's handlers.
void InstallFaultHandler();

// Returns the functions that kernel libraries call.
const mps_emulator_msl_runtime *Runtime();

}  // namespace mps_emulator::msl
