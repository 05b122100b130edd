#include "core/residency.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/blocks.h"
#include "core/fatal.h"

namespace mps_emulator {

namespace {

void Protect(const std::vector<DeviceRange> &ranges, int rights) {
  for (const DeviceRange &range : ranges) {
    uintptr_t begin = range.begin / kPage * kPage;
    mprotect(reinterpret_cast<void *>(begin), range.end - begin, rights);
  }
}

}  // namespace

char *Memory::Address(Block *block) {
  if (block->has_address) return block->device;
  char *pages = copies_.AllocatePages(block->size_class.capacity);
  if (!pages)
    Fatal("out of memory: no %zu bytes left for a buffer with a gpuAddress",
          block->size_class.capacity);
  if (block->device)
    memcpy(pages, block->device,
           copies_.DeviceBytes(block->size_class.capacity));
  copies_.Free(block->device, block->size_class.capacity);
  block->device = pages;
  block->has_address = true;
  addressed.push_back(block);
  return pages;
}

uint64_t GpuAddress(Buffer *buffer) {
  Memory::Locked memory;
  return reinterpret_cast<uint64_t>(memory->Address(buffer->block));
}

Residency::Residency(const std::vector<BufferUse> &uses) {
  Memory::Locked memory;
  for (const Block *block : memory->addressed) {
    auto begin = reinterpret_cast<uintptr_t>(block->device);
    bool used = std::any_of(
        uses.begin(), uses.end(),
        [block](const BufferUse &use) { return use.block == block; });
    (used ? resident : absent)
        .push_back({begin, begin + block->owner_size, block->owner_id});
  }
  Protect(absent, PROT_NONE);
}

Residency::~Residency() { Protect(absent, PROT_READ | PROT_WRITE); }

}  // namespace mps_emulator
