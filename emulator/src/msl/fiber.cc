#include "msl/fiber.h"

#include <sys/mman.h>

#include <cstring>

#include "core/limits.h"

#ifndef __x86_64__
#error "no context switch is written for this processor"
#endif

// Pushes the callee-saved registers on the old stack, and pops them from the
// new stack.  The floating-point control words stay as they are, because
// kernels do not change them.
asm(R"(
.text
.globl MpsEmulatorMslSwitch
.hidden MpsEmulatorMslSwitch
.type MpsEmulatorMslSwitch, @function
.p2align 4
MpsEmulatorMslSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
.size MpsEmulatorMslSwitch, .-MpsEmulatorMslSwitch
)");

namespace mps_emulator::msl {

namespace {

// A new stack has values for six registers, the address of the entry function,
// and an unused return address for the entry function.  The unused address
// aligns the stack as a call does.
constexpr size_t kFrameWords = 8;
constexpr size_t kEntryWord = 6;

// Stacks are a power of two apart, so equal offsets in all stacks share the
// same few lines of the cache.  So the offset at which a stack begins varies
// from stack to stack, and the threads use the whole cache.
size_t Stagger(unsigned index) { return index * 5 % 48 * 64; }

}  // namespace

FiberStacks::~FiberStacks() {
  if (base_ != nullptr) munmap(base_, count_ * kStackBytes);
}

bool FiberStacks::Reserve(unsigned count) {
  if (count <= count_) return true;
  void *base =
      mmap(nullptr, count * kStackBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (base == MAP_FAILED) return false;
  for (unsigned i = 0; i < count; ++i)
    mprotect(static_cast<char *>(base) + i * kStackBytes, kPage, PROT_NONE);
  if (base_ != nullptr) munmap(base_, count_ * kStackBytes);
  base_ = static_cast<char *>(base);
  count_ = count;
  return true;
}

FiberContext FiberStacks::Start(unsigned index, void (*entry)()) const {
  char *top = base_ + (index + 1) * kStackBytes - Stagger(index);
  auto *frame = reinterpret_cast<uintptr_t *>(top) - kFrameWords;
  memset(frame, 0, kFrameWords * sizeof(uintptr_t));
  frame[kEntryWord] = reinterpret_cast<uintptr_t>(entry);
  return frame;
}

bool FiberStacks::IsGuard(const void *address) const {
  auto at = reinterpret_cast<uintptr_t>(address);
  auto base = reinterpret_cast<uintptr_t>(base_);
  return Contains(address) && (at - base) % kStackBytes < kPage;
}

}  // namespace mps_emulator::msl
