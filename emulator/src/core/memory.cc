#include "core/memory.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/blocks.h"
#include "core/fatal.h"

namespace mps_emulator {

std::atomic<uintptr_t> handles_begin{0};
std::atomic<uintptr_t> handles_size{0};

namespace {

// Copies are compared in steps of this many bytes.
constexpr size_t kCompareStep = 4096;

}  // namespace

// Ends the program if the CPU has written to the block's present buffer while
// work that uses a former buffer of the block is in flight.
void Memory::CheckNoHostWrites(const Block *block) const {
  if (!block->published) return;
  size_t size = std::min(block->host_size, block->former_owner_size);
  if (!memcmp(block->host, block->published, size)) return;
  Fatal(
      "the host wrote to buffer #%lu while a command in flight was using the "
      "same memory, as buffer #%lu (%zu bytes, freed meanwhile).  On a Mac the "
      "command may read or overwrite the host's bytes.  After allocating a "
      "buffer and before the first write to the buffer, wait: "
      "torch::mps::synchronize() inside torch's dispatch queue",
      block->owner_id, block->former_owner_id, block->former_owner_size);
}

// Returns a free block of the size class of `size`, or a new block.  As a
// caching allocator does, the function prefers the block that was freed last,
// because the memory of that block is most likely in the CPU's cache.
Block *Memory::TakeBlock(size_t size, Origin origin) {
  SizeClass size_class = SizeClassOf(size + kMinRedzone);
  int stream = origin == Origin::kTorch ? CurrentStream() : 0;
  if (copies_.guards_everything()) {
    // A guarded copy ends exactly at its buffer's end, so other buffers do not
    // reuse the copy.
    ReleaseCached();
    size_class.capacity = (size + 15) / 16 * 16;
  } else {
    std::vector<Block *> &free =
        free_[static_cast<int>(origin)][size_class.index][stream];
    // A new buffer of the MTLDevice must not get memory that work in flight
    // uses.  In a program that waits for its commands, most blocks are idle, so
    // a few tries are enough.
    constexpr size_t kTries = 8;
    for (size_t i = 0; i < std::min(kTries, free.size()); ++i) {
      Block *&candidate = free[free.size() - 1 - i];
      if (origin == Origin::kDevice && candidate->InFlight()) continue;
      Block *block = candidate;
      candidate = free.back();
      free.pop_back();
      return block;
    }
  }
  Block *block = new (std::nothrow) Block;
  if (!block) return nullptr;
  block->size_class = size_class;
  block->origin = origin;
  block->stream = stream;
  statistics.reserved += size_class.capacity;
  return block;
}

void Memory::Destroy(Block *block) {
  std::erase(addressed, block);
  copies_.Free(block->device, block->size_class.capacity);
  copies_.Free(block->host, block->size_class.capacity);
  copies_.Free(block->published, block->size_class.capacity);
  statistics.reserved -= block->size_class.capacity;
  delete block;
}

// Destroys the blocks that no work in flight uses.
void Memory::DestroyIdle(std::vector<Block *> *blocks) {
  auto keep = std::partition(blocks->begin(), blocks->end(),
                             [](Block *block) { return block->InFlight(); });
  std::for_each(keep, blocks->end(), [this](Block *block) { Destroy(block); });
  blocks->erase(keep, blocks->end());
}

void Memory::ReleaseCached() {
  for (auto &classes : free_)
    for (auto &streams : classes)
      for (auto &blocks : streams) DestroyIdle(&blocks);
}

// Returns a new buffer that owns `block`.  If no handle is free, destroys the
// block and returns nullptr.
Buffer *Memory::Own(Block *block, size_t size) {
  Buffer *buffer = handles.Take(size);
  if (!buffer) {
    Destroy(block);
    return nullptr;
  }
  buffer->size = size;
  buffer->id = ++last_id_;
  buffer->block = block;
  block->former_owner_id = block->owner_id;
  block->former_owner_size = block->owner_size;
  block->owner_id = buffer->id;
  block->owner_size = size;
  block->owners_pending = 0;
  block->is_owned = true;
  buffer->origin = block->origin;
  buffer->device_only = false;
  buffer->references.store(1, std::memory_order_release);
  return buffer;
}

Buffer *Memory::Allocate(size_t size, Origin origin) {
  Block *block = TakeBlock(size, origin);
  if (!block) return nullptr;
  Buffer *buffer = Own(block, size);
  if (!buffer) return nullptr;
  if (origin == Origin::kTorch) {
    statistics.in_use += block->size_class.capacity;
    statistics.peak_in_use =
        std::max(statistics.peak_in_use, statistics.in_use);
  }
  return buffer;
}

void Memory::Free(Buffer *buffer) {
  Block *block = buffer->block;
  if (block->host_user == buffer->id) {
    if (block->FormerOwnerInFlight()) {
      CheckNoHostWrites(block);
    } else if (block->owners_pending) {
      // The waiting commands must see what the CPU has written so far, but not
      // what the CPU will write through the next buffer of this block.
      BeginBatch();
      Begin(block, buffer->id, buffer->size, false);
    }
  }
  if (block->origin == Origin::kTorch)
    statistics.in_use -= block->size_class.capacity;
  if (PointersAreAddresses() && block->host_user == buffer->id)
    by_pointer.erase(block->host);
  buffer->block = nullptr;
  block->is_owned = false;
  delete buffer->label;
  buffer->label = nullptr;
  handles.GiveBack(buffer);
  if (copies_.guards_everything() && !block->InFlight()) {
    // The block is not kept, so that a later use of [buffer contents] faults.
    Destroy(block);
    return;
  }
  free_[static_cast<int>(block->origin)][block->size_class.index][block->stream]
      .push_back(block);
}

BufferUse Memory::Announce(const BufferUse &use) {
  ++use.block->pending;
  if (use.buffer_id == use.block->owner_id) ++use.block->owners_pending;
  return use;
}

void Memory::End(const BufferUse &use) {
  --use.block->pending;
  if (use.buffer_id == use.block->owner_id) --use.block->owners_pending;
}

char *Memory::MakeCopy(Block *block, bool for_device) {
  const size_t capacity = block->size_class.capacity;
  char *copy = for_device ? copies_.AllocateForDevice(capacity)
                          : copies_.Allocate(capacity);
  if (!copy)
    Fatal("out of memory: no %zu bytes left for a copy of a buffer", capacity);
  return copy;
}

size_t Memory::RedzoneOf(const Block *block, size_t size) const {
  return std::min(copies_.DeviceBytes(block->size_class.capacity) - size,
                  kMaxRedzone);
}

char *Memory::Expose(Buffer *buffer) {
  Block *block = buffer->block;
  if (block->host_user == buffer->id) return block->host;
  if (!block->host) block->host = MakeCopy(block);
  if (!block->published && (block->device || block->pending))
    block->published = MakeCopy(block);

  bool device_is_mine = block->device_user == buffer->id;
  if (device_is_mine && !block->unpublished_results)
    memcpy(block->host, block->device, buffer->size);
  else
    memset(block->host, kPoison, buffer->size);
  if (block->published) memcpy(block->published, block->host, buffer->size);
  block->host_size = buffer->size;
  block->host_user.store(buffer->id, std::memory_order_release);
  return block->host;
}

// Copies to the device copy what the CPU has written: the bytes that differ
// between the host copy and the published copy.
void Memory::EnterHostWrites(Block *block) {
  size_t size = std::min(block->host_size, block->device_size);
  for (size_t begin = 0; begin < size; begin += kCompareStep) {
    size_t step = std::min(kCompareStep, size - begin);
    char *published = block->published + begin;
    if (!memcmp(block->host + begin, published, step)) continue;
    // Reads each byte once, because another thread may be writing to the host
    // copy.
    char host[kCompareStep];
    memcpy(host, block->host + begin, step);
    char *device = block->device + begin;
    for (size_t i = 0; i < step; ++i) {
      device[i] = host[i] != published[i] ? host[i] : device[i];
      published[i] = host[i];
    }
  }
}

// Copies to the host copy what commands have written: the words that differ
// between the device copy and the published copy.  Changes no other bytes of
// the host copy, because the CPU may be writing there.
void Memory::EnterDeviceWrites(Block *block) {
  size_t size = std::min(block->host_size, block->device_size);
  for (size_t begin = 0; begin < size; begin += kCompareStep) {
    size_t step = std::min(kCompareStep, size - begin);
    char *host = block->host + begin;
    const char *device = block->device + begin;
    char *published = block->published + begin;
    if (!memcmp(device, published, step)) continue;
    using Word = uint32_t;
    size_t i = 0;
    for (; i + sizeof(Word) <= step; i += sizeof(Word)) {
      Word now, before;
      memcpy(&now, device + i, sizeof(Word));
      memcpy(&before, published + i, sizeof(Word));
      if (now != before) memcpy(host + i, &now, sizeof(Word));
    }
    for (; i < step; ++i)
      if (device[i] != published[i]) host[i] = device[i];
    memcpy(published, device, step);
  }
}

// Ends the program if the host has written to bytes that an operator uses, and
// no wait came between the operator and the write.
void Memory::CheckNoHostWritesUnderOperators(const Block *block) const {
  if (block->operator_user != block->host_user) return;
  const size_t begin = block->operator_bytes.begin;
  const size_t end = std::min(block->operator_bytes.end, block->host_size);
  if (begin >= end ||
      !memcmp(block->host + begin, block->published + begin, end - begin))
    return;
  for (size_t i = begin; i < end; ++i)
    if (block->host[i] != block->published[i])
      Fatal(
          "the host wrote to byte %zu of MTLBuffer #%lu (%zu bytes) while an "
          "operator in flight uses this byte.  Wait for the operator first: on "
          "a Mac it may run after the write",
          i, block->operator_user, block->host_size);
}

char *Memory::Begin(Block *block, uint64_t buffer_id, size_t size,
                    bool overwrites_all) {
  if (!block->device) block->device = MakeCopy(block, /*for_device=*/true);
  if (buffer_id > block->device_user) {
    // This command is the first command that uses the buffer.
    bool exposed = block->host_user == buffer_id;
    if (exposed && block->FormerOwnerInFlight()) CheckNoHostWrites(block);
    block->device_user = buffer_id;
    block->device_size = size;
    block->unpublished_results = false;
    if (exposed) {
      if (!block->published) block->published = MakeCopy(block);
      memcpy(block->published, block->host, size);
      memcpy(block->device, block->host, size);
    } else if (!overwrites_all) {
      memset(block->device, kPoison, size);
    }
    memset(block->device + size, kRedzonePattern, RedzoneOf(block, size));
    if (exposed) return block->device;
  }
  if (block->HostCounts() && block->merged_in_batch != batch_) {
    block->merged_in_batch = batch_;
    if (block->host_user > buffer_id) CheckNoHostWrites(block);
    CheckNoHostWritesUnderOperators(block);
    EnterHostWrites(block);
  }
  return block->device;
}

void Memory::Publish(Block *block) {
  if (block->HostCounts()) {
    if (block->host_user > block->last_use_id) CheckNoHostWrites(block);
    CheckNoHostWritesUnderOperators(block);
    if (block->unpublished_results) EnterDeviceWrites(block);
  }
  block->unpublished_results = false;
}

Buffer *AllocateBuffer(size_t size, Origin origin) {
  return Memory::Locked()->Allocate(size, origin);
}

void RetainBuffer(Buffer *buffer) {
  buffer->references.fetch_add(1, std::memory_order_relaxed);
}

void ReleaseBuffer(Buffer *buffer) {
  if (buffer->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Memory::Locked memory;
  Upkeep upkeep;
  memory->Free(buffer);
}

Buffer *FindBuffer(const void *address) {
  if (!IsHandleAddress(address)) return nullptr;
  return Memory::Get().handles.Find(address);
}

Buffer *FindLiveBuffer(const void *handle) {
  Buffer *buffer = FindBuffer(handle);
  if (!buffer || buffer->handle != handle) return nullptr;
  return buffer->references.load(std::memory_order_acquire) > 0 ? buffer
                                                                : nullptr;
}

Buffer *RequireLiveBuffer(const void *handle, const char *what) {
  Buffer *buffer = FindBuffer(handle);
  if (!buffer) {
    if (IsHandleAddress(handle))
      Fatal("%s: %p was never an MTLBuffer", what, handle);
    Fatal(
        "%s: %p is not an MTLBuffer of the emulated device; is it the data "
        "pointer of a CPU tensor?",
        what, handle);
  }
  if (buffer->references.load(std::memory_order_acquire) <= 0)
    Fatal("%s: MTLBuffer #%lu (%zu bytes) has been freed", what, buffer->id,
          buffer->size);
  if (buffer->handle != handle)
    Fatal(
        "%s: %p is byte %td of MTLBuffer #%lu (%zu bytes), not the buffer "
        "itself: the MTLBuffer of a tensor is storage().data(), its offset "
        "storage_offset() * element_size()",
        what, handle, static_cast<const char *>(handle) - buffer->handle,
        buffer->id, buffer->size);
  return buffer;
}

bool PointersAreAddresses() {
  static const bool addresses = [] {
    const std::string pointers = Environment("MPS_EMULATOR_POINTERS");
    if (pointers != "" && pointers != "buffers" && pointers != "addresses" &&
        pointers != "unfindable")
      Fatal("MPS_EMULATOR_POINTERS is %s, not buffers, addresses or unfindable",
            pointers.c_str());
    return pointers == "addresses" || pointers == "unfindable";
  }();
  return addresses;
}

char *DataPointer(Buffer *buffer) {
  if (!PointersAreAddresses()) return buffer->handle;
  char *address = HostContents(buffer);
  Memory::Locked()->by_pointer[address] = buffer;
  return address;
}

Buffer *FindByPointer(const void *pointer) {
  if (!PointersAreAddresses()) return FindLiveBuffer(pointer);
  Memory::Locked memory;
  auto found = memory->by_pointer.find(pointer);
  return found == memory->by_pointer.end() ? nullptr : found->second;
}

Buffer *RequireByPointer(const void *pointer, const char *what) {
  if (!PointersAreAddresses()) return RequireLiveBuffer(pointer, what);
  Buffer *buffer = FindByPointer(pointer);
  if (!buffer)
    Fatal("%s: %p is not the data pointer of a live storage", what, pointer);
  return buffer;
}

char *HostContents(Buffer *buffer) {
  Block *block = buffer->block;
  if (block->host_user.load(std::memory_order_acquire) == buffer->id)
    return block->host;
  Memory::Locked memory;
  Upkeep upkeep;
  return memory->Expose(buffer);
}

BufferUse AnnounceUse(Buffer *buffer, bool writes, ByteRange bytes) {
  return Memory::Locked()->Announce({buffer->block, buffer->id, buffer->size,
                                     writes, buffer->untracked, bytes});
}

BufferUse AnnounceUse(const BufferUse &use, bool writes) {
  return Memory::Locked()->Announce(
      {use.block, use.buffer_id, use.size, writes, use.untracked, use.bytes});
}

void EndUse(const BufferUse &use) { Memory::Locked()->End(use); }

void CheckRedzone(const BufferUse &use, const char *what) {
  Memory::Locked memory;
  const Block *block = use.block;
  if (block->device_user != use.buffer_id) return;
  const auto *begin =
      reinterpret_cast<const unsigned char *>(block->device) + use.size;
  const auto *end = begin + memory->RedzoneOf(block, use.size);
  const auto *found = std::find_if(
      begin, end, [](unsigned char byte) { return byte != kRedzonePattern; });
  if (found != end)
    Fatal("%s wrote past the end of MTLBuffer #%lu (%zu bytes): byte +%zu",
          what, use.buffer_id, use.size, use.size + (found - begin));
}

MemoryStatistics GetMemoryStatistics() { return Memory::Locked()->statistics; }

void ResetPeakMemory() {
  Memory::Locked memory;
  memory->statistics.peak_in_use = memory->statistics.in_use;
}

void ReleaseCachedBlocks() { Memory::Locked()->ReleaseCached(); }

}  // namespace mps_emulator
