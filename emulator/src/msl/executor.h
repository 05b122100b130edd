// Runs the threads of a dispatch, one threadgroup after another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "msl/fiber.h"
#include "msl/msl.h"
#include "msl/race_checker.h"
#include "msl/schedule.h"
#include "msl/watchdog.h"

namespace mps_emulator::msl {

// The contents of threadgroup memory before a kernel writes to it, and the
// value of an inactive lane in an exchange: as a float, -102286.55.
inline constexpr int kPoison = 0xC7;

// The limit of threadgroup memory, plus room to align its pieces.
inline constexpr size_t kMemoryBytes = 2 * kMaxThreadgroupBytes;
inline constexpr size_t kMemoryAlignment = 256;
inline constexpr size_t kVariableAlignment = 16;
// Bytes behind each piece that the encoder sets; they must not change.
inline constexpr size_t kRedzone = 64;

inline size_t AlignUp(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// The source line of a call that waits.
inline unsigned LineOf(uint64_t site) {
  return static_cast<unsigned>(site >> 32);
}

// Each host thread that runs dispatches has an executor, which keeps the
// fibers' stacks between dispatches.
class Executor {
 public:
  // The first call on a thread creates the thread's executor.
  static Executor &OfThisThread();
  // nullptr if this thread has no executor.  Safe in a signal handler.
  static const Executor *OfThisThreadOrNull();

  Executor();

  // The caller has checked that the buffers of `dispatch` are bound and its
  // sizes are within the limits.
  void Run(const Dispatch &dispatch);

  // The dispatch of Run(); nullptr outside of Run().
  const Dispatch *dispatch() const { return dispatch_; }
  const FiberStacks &stacks() const { return stacks_; }
  // The checker's first finding; nullptr: none so far, or no checker.
  const char *failure() const {
    return checker_ == nullptr || checker_->failure().empty()
               ? nullptr
               : checker_->failure().c_str();
  }
  // The number of threadgroups that have run, in all dispatches.
  uint64_t progress() const { return progress_; }
  // The position of the running threadgroup, in threadgroups.
  const unsigned (&threadgroup_position() const)[3] {
    return launch_.threadgroup_position;
  }

 private:
  enum class State : uint8_t {
    kReady,
    kAtBarrier,
    kAtExchange,
    kFinished,
  };

  // One thread of the threadgroup that is running.
  struct Thread {
    FiberContext context = nullptr;
    uint64_t site = 0;            // the call in which it waits
    unsigned barrier_flags = 0;   // mem_flags of the barrier it waits at
    const void *value = nullptr;  // its value in an exchange
    unsigned value_size = 0;
    unsigned active = 0;  // the active lanes of the exchange
    uint16_t x = 0;       // its position in the threadgroup
    uint16_t y = 0;
    uint16_t z = 0;
    State state = State::kReady;
  };

  // The nested calls of functions that lead to a thread's place.  Of calls
  // deeper than kMost only the hash distinguishes two paths.
  struct CallPath {
    static constexpr unsigned kMost = 16;
    unsigned depth = 0;
    std::array<uint64_t, kMost> sites;
    std::array<uint64_t, kMost> hashes;  // hashes[i]: of the sites up to i

    uint64_t Hash() const;
    void Enter(uint64_t site);
    void Leave() { --depth; }
  };

  struct alignas(64) ExchangeBuffer {
    char bytes[kSimdWidth * 64];
  };

  void PlaceThreadgroupBuffers();
  // Calls Fatal() if the kernel wrote behind one of these buffers.
  void CheckThreadgroupBuffers() const;
  void RunThreadgroup(uint32_t x, uint32_t y, uint32_t z);
  void RunAsLoop();
  void RunOnFibers();
  void StartFibers();

  // Runs the ready threads of a SIMD group until each waits or has finished.
  void RunSimdgroup(unsigned simdgroup);
  // For a SIMD group whose threads all wait: carries out the exchange that
  // comes first in the source.
  void CompleteExchange(unsigned simdgroup);
  // Lets all threads pass the barrier at which they wait.
  void CompleteBarrier();
  [[noreturn]] void FailAtBarrier();

  // Whether two threads wait at the same call, reached by the same calls.
  bool AtSamePlace(unsigned a, unsigned b) const;
  // Whether thread `a` waits at an earlier call of the source than `b`.
  bool IsBefore(unsigned a, unsigned b) const;
  // "line 12, called in line 34"
  std::string DescribePlace(unsigned thread) const;

  // Called on a fiber: switches away until the fiber is resumed.
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
  // The index of the running thread in its threadgroup.  Without fibers the
  // index is right only if races are checked.
  unsigned RunningThread() const;
  // Whether memory belongs to a kernel thread's own stack.
  bool IsOnStack(const void *address) const;
  // Whether memory is a source of a simdgroup function's copy.
  bool IsExchanged(const void *address) const;

  const Dispatch *dispatch_ = nullptr;
  const Kernel *kernel_ = nullptr;
  mps_emulator_msl_launch launch_;
  Schedule schedule_;
  Watchdog watchdog_{this};
  unsigned thread_count_ = 0;       // of the threadgroup that is running
  volatile uint64_t progress_ = 0;  // read by a signal handler

  FiberStacks stacks_;
  std::vector<Thread> threads_;
  std::vector<CallPath> paths_;  // of `threads_`
  unsigned started_ = 0;         // the fibers that have entered FiberMain()
  FiberContext main_context_ = nullptr;
  Thread *running_ = nullptr;  // nullptr while the main context runs
  unsigned unfinished_ = 0;

  // The threads that RunSimdgroup() has not run yet.
  std::array<uint16_t, kSimdWidth> order_;
  unsigned order_size_ = 0;
  unsigned order_next_ = 0;

  std::unique_ptr<ExchangeBuffer[]> exchange_buffers_;  // one a simdgroup

  // Threadgroup memory: first the buffers that the encoder sets, then the
  // kernel's variables in the order of their first use.
  std::unique_ptr<char[]> memory_;
  char *memory_begin_ = nullptr;
  size_t memory_used_ = 0;
  std::vector<ThreadgroupPiece> pieces_;  // the parts that the kernel may use
  std::vector<void *> variables_;

  // Where races are checked.
  std::unique_ptr<RaceChecker> checker_;
  const void *outermost_frame_ = nullptr;  // the frame of Run()
  unsigned looping_thread_ = 0;  // the running thread, without fibers

  friend struct RuntimeTable;
};

// This thread's executor, which signal handlers read too.
extern constinit thread_local Executor *executor
    __attribute__((tls_model("initial-exec")));

// From now on a fault of the calling thread in a dispatch, an access outside of
// the kernel's memory or a division by zero, prints a message and ends the
// process.  The first call installs the process's handlers.
void InstallFaultHandler();

// The functions that kernel libraries call.
const mps_emulator_msl_runtime *Runtime();

}  // namespace mps_emulator::msl
