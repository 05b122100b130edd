#include "core/copy_memory.h"

#include <sys/mman.h>

#include <bit>

#include "core/environment.h"

namespace mps_emulator {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSmallestClass = 64;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

char *Map(size_t bytes) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char *>(memory);
}

}  // namespace

SizeClass SizeClassOf(size_t size) {
  if (size <= kSmallestClass) return {0, kSmallestClass};
  // 2^exponent < size <= 2^(exponent + 1), in four equal steps
  unsigned exponent = std::bit_width(size - 1) - 1;
  size_t base = size_t{1} << exponent;
  size_t step = base / 4;
  size_t steps = (size - base + step - 1) / step;
  unsigned first = (exponent - std::bit_width(kSmallestClass) + 1) * 4;
  // Multiples of 64 keep everything that is cut from a slab aligned; the
  // smallest classes coincide for it, which does no harm.
  return {first + static_cast<unsigned>(steps),
          RoundUp(base + steps * step, kSmallestClass)};
}

CopyMemory::CopyMemory()
    : guards_everything_(EnvironmentFlag("MPS_EMULATOR_GUARD")) {}

char *CopyMemory::Allocate(size_t capacity) {
  if (IsLarge(capacity)) {
    size_t pages = RoundUp(capacity, kPage);
    char *memory = Map(pages + kPage);
    if (!memory) return nullptr;
    // Failing here (too many mappings) costs the guard, nothing else.
    mprotect(memory + pages, kPage, PROT_NONE);
    return guards_everything_ ? memory + pages - capacity : memory;
  }

  SizeClass size_class = SizeClassOf(capacity);
  std::vector<char *> &free = free_[size_class.index];
  if (!free.empty()) {
    char *memory = free.back();
    free.pop_back();
    return memory;
  }
  if (slab_left_ < size_class.capacity) {
    // What is left of the old slab is lost; it is less than one class.
    slab_ = Map(kSlabBytes);
    if (!slab_) {
      slab_left_ = 0;
      return nullptr;
    }
    slab_left_ = kSlabBytes;
  }
  char *memory = slab_;
  slab_ += size_class.capacity;
  slab_left_ -= size_class.capacity;
  return memory;
}

void CopyMemory::Free(char *memory, size_t capacity) {
  if (!memory) return;
  if (IsLarge(capacity)) {
    size_t pages = RoundUp(capacity, kPage);
    if (guards_everything_) memory -= pages - capacity;
    munmap(memory, pages + kPage);
    return;
  }
  free_[SizeClassOf(capacity).index].push_back(memory);
}

}  // namespace mps_emulator
