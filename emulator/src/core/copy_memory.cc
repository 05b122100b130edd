#include "core/copy_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>

#include "core/environment.h"
#include "core/fatal.h"

namespace mps_emulator {

namespace {

// In guard mode, this zone follows each copy, so that an access far past the
// end faults as well.  The zone needs address space, but no memory.
constexpr size_t kGuardZone = size_t{64} << 20;
constexpr size_t kSmallestClass = 64;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

char *Map(size_t bytes) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char *>(memory);
}

// The live and the recently freed guarded copies, for PrintFault().
struct GuardedCopy {
  std::atomic<uintptr_t> begin{0};
  size_t capacity = 0;
  bool freed = false;
};
constexpr size_t kMostGuarded = size_t{1} << 16;
GuardedCopy guarded_copies[kMostGuarded];
std::atomic<size_t> guarded_taken{0};

void NoteGuarded(char *memory, size_t capacity) {
  GuardedCopy &copy = guarded_copies[guarded_taken++ % kMostGuarded];
  copy.capacity = capacity;
  copy.freed = false;
  copy.begin = reinterpret_cast<uintptr_t>(memory);
}

void NoteFreed(const char *memory) {
  for (GuardedCopy &copy : guarded_copies)
    if (copy.begin == reinterpret_cast<uintptr_t>(memory)) copy.freed = true;
}

}  // namespace

void CopyMemory::PrintFault(const void *address) {
  auto at = reinterpret_cast<uintptr_t>(address);
  for (const GuardedCopy &copy : guarded_copies) {
    uintptr_t begin = copy.begin;
    if (begin == 0 || at - begin >= copy.capacity + kGuardZone) continue;
    if (at - begin >= copy.capacity)
      return PrintFatalInHandler(
          "the CPU accessed byte +%zu of the contents of an MTLBuffer that "
          "ends at %zu",
          at - begin, copy.capacity);
    if (copy.freed)
      return PrintFatalInHandler(
          "the CPU used [buffer contents], at byte +%zu, of an MTLBuffer that "
          "has been freed: its memory belongs to nobody, or to another buffer. "
          "Keep a reference to the buffer (or the tensor) as long as the "
          "address is used",
          at - begin);
  }
}

SizeClass SizeClassOf(size_t size) {
  if (size <= kSmallestClass) return {0, kSmallestClass};
  // 2^exponent < size <= 2^(exponent + 1); four equal steps divide this range
  unsigned exponent = std::bit_width(size - 1) - 1;
  size_t base = size_t{1} << exponent;
  size_t step = base / 4;
  size_t steps = (size - base + step - 1) / step;
  unsigned first = (exponent - std::bit_width(kSmallestClass) + 1) * 4;
  // aligned_alloc() accepts only multiples of 64.  So some of the smallest
  // classes have the same capacity, which does no harm.
  return {first + static_cast<unsigned>(steps),
          RoundUp(base + steps * step, kSmallestClass)};
}

CopyMemory::CopyMemory()
    : guards_everything_(EnvironmentFlag("MPS_EMULATOR_GUARD")) {}

size_t CopyMemory::GuardBytes() const {
  return guards_everything_ ? kGuardZone : kPage;
}

char *CopyMemory::Allocate(size_t capacity) {
  if (IsLarge(capacity)) {
    size_t pages = RoundUp(capacity, kPage);
    char *memory = Map(pages + GuardBytes());
    if (!memory) return nullptr;
    // If mprotect() fails because there are too many mappings, only the guard
    // is missing.
    mprotect(memory + pages, GuardBytes(), PROT_NONE);
    if (!guards_everything_) return memory;
    NoteGuarded(memory + pages - capacity, capacity);
    return memory + pages - capacity;
  }

  return static_cast<char *>(std::aligned_alloc(kSmallestClass, capacity));
}

char *CopyMemory::AllocateForDevice(size_t capacity) {
  return IsLarge(capacity) ? Allocate(capacity)
                           : static_cast<char *>(std::aligned_alloc(
                                 kSmallestClass, DeviceBytes(capacity)));
}

char *CopyMemory::AllocatePages(size_t capacity) {
  return IsLarge(capacity) ? Allocate(capacity)
                           : static_cast<char *>(std::aligned_alloc(
                                 kPage, RoundUp(DeviceBytes(capacity), kPage)));
}

void CopyMemory::Free(char *memory, size_t capacity) {
  if (!memory) return;
  if (IsLarge(capacity)) {
    size_t pages = RoundUp(capacity, kPage);
    if (guards_everything_) {
      NoteFreed(memory);
      memory -= pages - capacity;
      // The addresses stay mapped without access rights, so a later use faults.
      mmap(memory, pages + GuardBytes(), PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
      freed_.emplace_back(memory, pages + GuardBytes());
      // A process may have about 65,000 mappings.
      if (freed_.size() > kMostFreed) {
        munmap(freed_.front().first, freed_.front().second);
        freed_.pop_front();
      }
      return;
    }
    munmap(memory, pages + GuardBytes());
    return;
  }
  std::free(memory);
}

}  // namespace mps_emulator
