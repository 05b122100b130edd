// Fibers: each thread of a threadgroup has its own stack.  One thread of the
// host runs the fibers, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mps_emulator::msl {

// The place at which a suspended fiber resumes.  Invalid while the fiber runs.
using FiberContext = void *;

// Stores the caller's place in `*from` and continues at `to`.  Returns after a
// switch back to `*from`.
extern "C" void MpsEmulatorMslSwitch(FiberContext *from, FiberContext to);

// A set of stacks, each with an inaccessible page below it.
class FiberStacks {
 public:
  // A stack has room for tens of thousands of a kernel's private values.  The
  // system provides the memory only when a thread uses it.
  static constexpr size_t kStackBytes = 256 * 1024;

  FiberStacks() = default;
  FiberStacks(const FiberStacks &) = delete;
  FiberStacks &operator=(const FiberStacks &) = delete;
  ~FiberStacks();

  // Provides at least `count` stacks.  Returns false if no memory is left.  If
  // the stacks move, all contexts become invalid.
  bool Reserve(unsigned count);

  // Returns a context that calls `entry` on stack `index`.  `entry` must never
  // return.
  FiberContext Start(unsigned index, void (*entry)()) const;

  // Whether `address` is in one of the stacks.
  bool Contains(const void *address) const {
    return reinterpret_cast<uintptr_t>(address) -
               reinterpret_cast<uintptr_t>(base_) <
           count_ * kStackBytes;
  }

  // Whether `address` is in the inaccessible page below a stack, because a
  // thread has used more than kStackBytes.  A signal handler may call the
  // function.
  bool IsGuard(const void *address) const;

 private:
  char *base_ = nullptr;
  unsigned count_ = 0;
};

}  // namespace mps_emulator::msl
