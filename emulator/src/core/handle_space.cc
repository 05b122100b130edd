#include "core/handle_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

#include "core/fatal.h"
#include "core/memory.h"

namespace mps_emulator {

HandleSpace::HandleSpace() {
  // Reserves a terabyte for each region, or less if the system allows less
  // address space.  No memory is ever allocated for these addresses.
  for (region_shift_ = 40; region_shift_ > kMaxShift; --region_shift_) {
    size_ = size_t{kNumRegions} << region_shift_;
    void *base = mmap(nullptr, size_, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) continue;
    base_ = reinterpret_cast<uintptr_t>(base);
    // Excludes handles from core files.
    madvise(base, size_, MADV_DONTDUMP);
    break;
  }
  if (!base_)
    Fatal(
        "cannot reserve %zu GiB of addresses for buffer handles, which need no "
        "memory: raise the limit with `ulimit -v unlimited`",
        size_ >> 30);
  for (unsigned i = 0; i < kNumRegions; ++i)
    regions_[i].num_slots =
        std::min<size_t>(kMaxChunks << kChunkShift,
                         size_t{1} << (region_shift_ - kMinShift - i));
}

Buffer *HandleSpace::Take(size_t size) {
  unsigned shift = std::max<unsigned>(kMinShift, std::bit_width(size));
  if (shift > kMaxShift) return nullptr;
  Region &region = regions_[shift - kMinShift];

  if (region.num_taken < region.num_slots &&
      region.freed.size() <= kQuarantine) {
    size_t slot = region.num_taken;
    Buffer *&chunk = region.chunks[slot >> kChunkShift];
    size_t in_chunk = slot & ((size_t{1} << kChunkShift) - 1);
    if (!chunk) {
      chunk = new (std::nothrow) Buffer[size_t{1} << kChunkShift];
      if (!chunk) return nullptr;
    }
    Buffer *buffer = &chunk[in_chunk];
    buffer->handle = reinterpret_cast<char *>(
        base_ + (uintptr_t{shift - kMinShift} << region_shift_) +
        (slot << shift));
    ++region.num_taken;
    return buffer;
  }

  if (region.freed.empty()) return nullptr;
  Buffer *buffer = region.freed.front();
  region.freed.pop_front();
  return buffer;
}

void HandleSpace::GiveBack(Buffer *buffer) {
  uintptr_t offset = reinterpret_cast<uintptr_t>(buffer->handle) - base_;
  regions_[offset >> region_shift_].freed.push_back(buffer);
}

Buffer *HandleSpace::Find(const void *address) const {
  uintptr_t offset = reinterpret_cast<uintptr_t>(address) - base_;
  unsigned index = static_cast<unsigned>(offset >> region_shift_);
  uintptr_t in_region = offset & ((uintptr_t{1} << region_shift_) - 1);
  size_t slot = in_region >> (index + kMinShift);
  const Region &region = regions_[index];
  if (slot >= region.num_slots) return nullptr;
  Buffer *chunk = region.chunks[slot >> kChunkShift];
  if (!chunk) return nullptr;
  Buffer *buffer = &chunk[slot & ((size_t{1} << kChunkShift) - 1)];
  return buffer->handle ? buffer : nullptr;
}

}  // namespace mps_emulator
