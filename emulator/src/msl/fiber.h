// Fibers: stacks on which the threads of a threadgroup run, one at a time, on
// one thread of the host.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mps_emulator::msl {

// The place at which a suspended fiber resumes; invalid while it runs.
using FiberContext = void *;

// Stores the caller's place in `*from` and continues at `to`.  Returns after a
// switch back to `*from`.
extern "C" void MpsEmulatorMslSwitch(FiberContext *from, FiberContext to);

// A set of stacks, each with an inaccessible page below it.
class FiberStacks {
 public:
  // Enough for kernels with tens of thousands of private values.  The system
  // gives memory at the first access.
  static constexpr size_t kStackBytes = 256 * 1024;

  FiberStacks() = default;
  FiberStacks(const FiberStacks &) = delete;
  FiberStacks &operator=(const FiberStacks &) = delete;
  ~FiberStacks();

  // Provides at least `count` stacks.  Returns false if the system lacks
  // memory.
  bool Reserve(unsigned count);

  // A context that calls `entry`, which must never return, on stack `index`.
  FiberContext Start(unsigned index, void (*entry)()) const;

  // Whether `address` is in one of the stacks.
  bool Contains(const void *address) const {
    return reinterpret_cast<uintptr_t>(address) -
               reinterpret_cast<uintptr_t>(base_) <
           count_ * kStackBytes;
  }

  // Whether `address` is in the inaccessible page below a stack: a thread used
  // more than kStackBytes.  Safe in a signal handler.
  bool IsGuard(const void *address) const;

 private:
  char *base_ = nullptr;
  unsigned count_ = 0;
};

}  // namespace mps_emulator::msl
