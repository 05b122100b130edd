#include "core/memory.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/copy_memory.h"
#include "core/counters.h"
#include "core/environment.h"
#include "core/fatal.h"
#include "core/handle_space.h"
#include "core/host_fault.h"
#include "core/stream.h"
#include "core/trace.h"

namespace mps_emulator {

// The memory behind a buffer; see the memory model in memory.h.
//
// A recycled block keeps its copies.  `*_user` is the id of the buffer for
// which a copy was last initialised; a younger buffer has a larger id.  A
// command of an older buffer must not initialise the copy again.
struct Block {
  SizeClass size_class;
  Origin origin;

  char *device = nullptr;
  uint64_t device_user = 0;
  size_t device_size = 0;  // size of that buffer

  char *host = nullptr;
  char *published = nullptr;
  // HostContents() reads it without the lock.
  std::atomic<uint64_t> host_user{0};
  size_t host_size = 0;

  // Announced commands that have not ended; the commands of the present or last
  // owner of the block are counted apart.
  uint32_t pending = 0;
  uint32_t owners_pending = 0;
  uint64_t owner_id = 0;
  size_t owner_size = 0;
  uint64_t former_owner_id = 0;
  size_t former_owner_size = 0;
  // The device copy has results that no wait has published.
  bool unpublished_results = false;

  // The batch in which host writes last entered the device copy.
  uint64_t merged_in_batch = 0;

  uint32_t listings = 0;            // the UsedBlocks that list this block
  UsedBlocks *listed_in = nullptr;  // the newest of them
  uint64_t last_use_id = 0;         // the buffer of the last use

  // If the order of commands is checked: the last command that wrote, and the
  // last command that read.
  struct LastUse {
    const UsedBlocks *by = nullptr;
    uint64_t done = 0;  // by->done() with it
    uint64_t buffer_id = 0;
    std::string command;
  };
  LastUse last_write;
  LastUse last_read;
  // The same for committed commands, which may run at any time.
  LastUse committed_write;
  LastUse committed_read;
  bool is_owned = false;  // a live buffer owns the block

  // For Origin::kHost: the function that returns the memory to the program.
  std::function<void()> deallocator;

  // Work on a former owner of the block is in flight.
  bool FormerOwnerInFlight() const {
    return pending != owners_pending || (listings && last_use_id < owner_id);
  }
  bool InFlight() const { return pending != 0 || listings != 0; }
  // The host copy belongs to the buffer of the device copy, or to a younger
  // buffer on the same block.
  bool HostCounts() const {
    uint64_t user = host_user.load(std::memory_order_relaxed);
    return user != 0 && user >= device_user;
  }
};

std::atomic<uintptr_t> handles_begin{0};
std::atomic<uintptr_t> handles_size{0};

namespace {

// Counts its lifetime as upkeep.  An operator's time includes the upkeep within
// the operator, which does not count.
class Upkeep {
 public:
  Upkeep() : begin_(*CurrentOperator() ? 0 : TraceTime()) {}
  ~Upkeep() {
    if (begin_) Count(kUpkeep, TraceTime() - begin_);
  }
  Upkeep(const Upkeep &) = delete;

 private:
  int64_t begin_;
};

// The bytes behind a buffer, up to the block's capacity, must keep their
// pattern. Every block has room for kMinRedzone.
constexpr size_t kMinRedzone = 16;
constexpr size_t kMaxRedzone = 64;
constexpr unsigned char kRedzonePattern = 0x5E;

// The step, in bytes, of comparisons of host and published copies.
constexpr size_t kCompareStep = 4096;

class Memory {
 public:
  static Memory &Get() {
    // Never destroyed, because programs release buffers during exit too.
    static Memory *memory = new Memory;
    return *memory;
  }

  // Holds the lock for its lifetime, then calls the deallocators that are due.
  // A deallocator belongs to the program and may call any function.
  class Locked {
   public:
    Locked() { memory_->mutex_.lock(); }
    ~Locked() {
      std::vector<std::function<void()>> due;
      due.swap(memory_->due_);
      memory_->mutex_.unlock();
      for (auto &deallocator : due) deallocator();
    }
    Locked(const Locked &) = delete;
    Memory *operator->() const { return memory_; }

   private:
    Memory *memory_ = &Get();
  };

  HandleSpace handles;

  // The caller of the functions below holds the lock.
  Buffer *Allocate(size_t size, Origin origin);
  Buffer *Wrap(char *memory, size_t size, std::function<void()> deallocator);
  void Free(Buffer *buffer);
  char *Expose(Buffer *buffer);
  char *Begin(Block *block, uint64_t buffer_id, size_t size,
              bool overwrites_all);
  BufferUse Announce(const BufferUse &use);
  void End(const BufferUse &use);
  void Publish(Block *block);
  void BeginBatch() {
    ++batch_;
    checks_commands = EnvironmentFlag("MPS_EMULATOR_CHECK_RACES");
  }
  void ReleaseCached();
  void DestroyFreedHostBlocks() {
    if (!free_host_.empty()) Destroy(&free_host_);
  }
  MemoryStatistics statistics{};
  bool checks_commands = false;

 private:
  Memory() {
    handles_size = handles.size();
    handles_begin = handles.begin();
    InstallHostFaultHandler();
  }

  Block *TakeBlock(size_t size, Origin origin);
  Buffer *Own(Block *block, size_t size);
  void Destroy(Block *block);
  char *MakeCopy(Block *block);
  void Destroy(std::vector<Block *> *blocks);
  size_t RedzoneOf(const Block *block, size_t size) const;
  void EnterHostWrites(Block *block);
  void EnterDeviceWrites(Block *block);
  void CheckNoHostWrites(const Block *block) const;

  std::mutex mutex_;
  CopyMemory copies_;
  std::vector<Block *> free_[2][kNumSizeClasses];  // by origin and class
  std::vector<Block *> free_host_;  // kHost: waiting until nothing uses them
  std::vector<std::function<void()>> due_;  // deallocators to call, unlocked
  uint64_t last_id_ = 0;
  uint64_t batch_ = 1;

  friend void mps_emulator::CheckRedzone(const BufferUse &, const char *);
};

// The CPU must not write to a buffer while work on a former owner of its block
// is in flight.
void Memory::CheckNoHostWrites(const Block *block) const {
  if (!block->published) return;
  size_t size = std::min(block->host_size, block->former_owner_size);
  if (!memcmp(block->host, block->published, size)) return;
  Fatal(
      "the host wrote to buffer #%lu while the device was still at work on its "
      "memory, for a command on the memory's former buffer, #%lu (%zu bytes, "
      "freed meanwhile).  On a Mac the command may read or overwrite the "
      "host's bytes.  After allocating and before the first write, wait: "
      "torch::mps::synchronize() inside torch's dispatch queue",
      block->owner_id, block->former_owner_id, block->former_owner_size);
}

// Returns a free block of the size class, or a new one.  Like a caching
// allocator the function prefers the youngest free block, whose memory is warm.
Block *Memory::TakeBlock(size_t size, Origin origin) {
  SizeClass size_class = SizeClassOf(size + kMinRedzone);
  if (copies_.guards_everything()) {
    // A guarded copy ends exactly at its buffer's end, so no other buffer fits.
    for (auto &blocks : free_)
      for (auto &of_class : blocks) Destroy(&of_class);
    size_class.capacity = (size + 15) / 16 * 16;
  } else {
    std::vector<Block *> &free =
        free_[static_cast<int>(origin)][size_class.index];
    // No work in flight may use the memory of a new buffer of the MTLDevice. In
    // a program that waits most blocks are idle, so a few tries are enough.
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
  statistics.reserved += size_class.capacity;
  return block;
}

void Memory::Destroy(Block *block) {
  copies_.Free(block->device, block->size_class.capacity);
  if (block->origin == Origin::kHost)
    due_.push_back(std::move(block->deallocator));
  else
    copies_.Free(block->host, block->size_class.capacity);
  copies_.Free(block->published, block->size_class.capacity);
  statistics.reserved -= block->size_class.capacity;
  delete block;
}

// Destroys unused blocks.
void Memory::Destroy(std::vector<Block *> *blocks) {
  auto keep = std::partition(blocks->begin(), blocks->end(),
                             [](Block *block) { return block->InFlight(); });
  std::for_each(keep, blocks->end(), [this](Block *block) { Destroy(block); });
  blocks->erase(keep, blocks->end());
}

void Memory::ReleaseCached() {
  Destroy(&free_host_);
  for (auto &blocks : free_)
    for (auto &of_class : blocks) Destroy(&of_class);
}

// Returns a new buffer for `block`; without a free handle destroys the block.
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

Buffer *Memory::Wrap(char *memory, size_t size,
                     std::function<void()> deallocator) {
  Block *block = new (std::nothrow) Block;
  if (!block) return nullptr;
  block->size_class = SizeClassOf(size + kMinRedzone);
  block->origin = Origin::kHost;
  block->deallocator = std::move(deallocator);
  statistics.reserved += block->size_class.capacity;
  Buffer *buffer = Own(block, size);
  if (!buffer) return nullptr;
  block->host = memory;
  block->host_size = size;
  block->host_user = buffer->id;
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
      // The CPU's writes so far count for the waiting commands.  Writes through
      // the next buffer on this block do not.
      BeginBatch();
      Begin(block, buffer->id, buffer->size, false);
    }
  }
  if (block->origin == Origin::kTorch)
    statistics.in_use -= block->size_class.capacity;
  buffer->block = nullptr;
  block->is_owned = false;
  delete buffer->label;
  buffer->label = nullptr;
  handles.GiveBack(buffer);
  if (block->origin == Origin::kHost) {
    free_host_.push_back(block);
    Destroy(&free_host_);
    return;
  }
  if (copies_.guards_everything() && !block->InFlight()) {
    // A later use of the contents faults.
    Destroy(block);
    return;
  }
  free_[static_cast<int>(block->origin)][block->size_class.index].push_back(
      block);
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

char *Memory::MakeCopy(Block *block) {
  char *copy = copies_.Allocate(block->size_class.capacity);
  if (!copy)
    Fatal("out of memory: no %zu bytes left for a copy of a buffer",
          block->size_class.capacity);
  return copy;
}

size_t Memory::RedzoneOf(const Block *block, size_t size) const {
  return std::min(block->size_class.capacity - size, kMaxRedzone);
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

// Copies bytes that the CPU wrote since host and device last agreed to the
// device copy.
void Memory::EnterHostWrites(Block *block) {
  size_t size = std::min(block->host_size, block->device_size);
  for (size_t begin = 0; begin < size; begin += kCompareStep) {
    size_t step = std::min(kCompareStep, size - begin);
    char *published = block->published + begin;
    if (!memcmp(block->host + begin, published, step)) continue;
    // Reads each byte once, because another thread may be writing other bytes.
    char host[kCompareStep];
    memcpy(host, block->host + begin, step);
    char *device = block->device + begin;
    for (size_t i = 0; i < step; ++i) {
      device[i] = host[i] != published[i] ? host[i] : device[i];
      published[i] = host[i];
    }
  }
}

// Copies words that commands wrote since host and device last agreed to the
// host copy, and changes no other bytes: the CPU may be writing there.
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

char *Memory::Begin(Block *block, uint64_t buffer_id, size_t size,
                    bool overwrites_all) {
  if (!block->device) block->device = MakeCopy(block);
  if (buffer_id > block->device_user) {
    // The first command of this buffer.
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
    EnterHostWrites(block);
  }
  return block->device;
}

void Memory::Publish(Block *block) {
  if (block->HostCounts()) {
    if (block->host_user > block->last_use_id) CheckNoHostWrites(block);
    if (block->unpublished_results) EnterDeviceWrites(block);
  }
  block->unpublished_results = false;
}

}  // namespace

Buffer *AllocateBuffer(size_t size, Origin origin) {
  Count(kAllocations);
  Count(kAllocatedBytes, size);
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

Buffer *WrapHostMemory(void *memory, size_t size,
                       std::function<void()> deallocator) {
  return Memory::Locked()->Wrap(static_cast<char *>(memory), size,
                                std::move(deallocator));
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

char *HostContents(Buffer *buffer) {
  Block *block = buffer->block;
  if (block->host_user.load(std::memory_order_acquire) == buffer->id)
    return block->host;
  Memory::Locked memory;
  Upkeep upkeep;
  return memory->Expose(buffer);
}

BufferUse AnnounceUse(Buffer *buffer, bool writes) {
  return Memory::Locked()->Announce(
      {buffer->block, buffer->id, buffer->size, writes, buffer->untracked});
}

BufferUse AnnounceUse(const BufferUse &use, bool writes) {
  return Memory::Locked()->Announce(
      {use.block, use.buffer_id, use.size, writes, use.untracked});
}

void EndUse(const BufferUse &use) { Memory::Locked()->End(use); }

void CheckRedzone(const BufferUse &use, const char *what) {
  Memory::Locked memory;
  const Block *block = use.block;
  if (block->device_user != use.buffer_id) return;
  size_t redzone = memory->RedzoneOf(block, use.size);
  for (size_t i = 0; i < redzone; ++i) {
    unsigned char found = block->device[use.size + i];
    if (found == kRedzonePattern) continue;
    Fatal("%s wrote past the end of MTLBuffer #%lu (%zu bytes): byte +%zu",
          what, use.buffer_id, use.size, use.size + i);
  }
}

bool IsAlive(const BufferUse &use) {
  Memory::Locked memory;
  return use.block->is_owned && use.block->owner_id == use.buffer_id;
}

bool ChecksCommands() { return Memory::Get().checks_commands; }

void HostSnapshot::Take(const std::vector<BufferUse> &uses) {
  Memory::Locked memory;
  for (const BufferUse &use : uses) {
    const Block *block = use.block;
    if (block->host_user != use.buffer_id) continue;
    bool is_known = false;
    for (const Contents &known : contents_)
      is_known = is_known || known.use.buffer_id == use.buffer_id;
    if (!is_known)
      contents_.push_back({use, std::string(block->host, use.size)});
  }
}

std::vector<HostSnapshot::Write> HostSnapshot::Writes() const {
  Memory::Locked memory;
  std::vector<Write> writes;
  for (const Contents &contents : contents_) {
    const Block *block = contents.use.block;
    if (block->host_user != contents.use.buffer_id) continue;
    const char *before = contents.bytes.data();
    for (size_t i = 0; i < contents.bytes.size(); ++i) {
      if (block->host[i] == before[i]) continue;
      if (!writes.empty() && writes.back().end == i &&
          writes.back().buffer_id == contents.use.buffer_id)
        ++writes.back().end;
      else
        writes.push_back({contents.use.buffer_id, i, i + 1});
    }
  }
  return writes;
}

void UsedBlocks::OrderAfter(const UsedBlocks *other, uint64_t done) {
  uint64_t &known = ordered_after_[other];
  known = std::max(known, done);
}

// Ends the program if a command of another queue has used the block, one of the
// two commands writes, and the program has not ordered them.
void UsedBlocks::CheckOrder(const BufferUse &use) {
  Block *block = use.block;
  ++done_;
  for (const Block::LastUse *last :
       {&block->last_write, &block->committed_write, &block->last_read,
        &block->committed_read}) {
    const bool wrote =
        last == &block->last_write || last == &block->committed_write;
    if (!wrote && !use.writes) continue;
    if (last->by == nullptr || last->by == this ||
        last->buffer_id != use.buffer_id || last->done <= last->by->known_)
      continue;
    auto ordered = ordered_after_.find(last->by);
    if (ordered != ordered_after_.end() && last->done <= ordered->second)
      continue;
    Fatal(
        "a race between two command queues on MTLBuffer #%lu (%zu bytes): %s "
        "on queue \"%s\" %s it, %s on queue \"%s\" %s it, and nothing orders "
        "the two: on a Mac they run at the same time, or in the other order.  "
        "Commit the first (torch's stream: torch::mps::commit()) and wait for "
        "it, or let the second wait for an MTLEvent that the first signals",
        use.buffer_id, use.size, last->command.c_str(),
        last->by->label_->c_str(), wrote ? "writes" : "reads", command_,
        label_->c_str(), use.writes ? "writes" : "reads");
  }
  (use.writes ? block->last_write : block->last_read) = {
      this, done_, use.buffer_id, command_};
}

void UsedBlocks::NoteCommitted(const BufferUse &use, const char *command) {
  Memory::Locked memory;
  (use.writes ? use.block->committed_write : use.block->committed_read) = {
      this, ++done_, use.buffer_id, command};
}

void UsedBlocks::NoteUse(const BufferUse &use) {
  Block *block = use.block;
  if (Memory::Get().checks_commands) CheckOrder(use);
  if (use.writes) block->unpublished_results = true;
  block->last_use_id = use.buffer_id;
  if (block->listed_in == this) return;
  block->listed_in = this;
  ++block->listings;
  blocks_.push_back(block);
}

void UsedBlocks::BeginBatch() { Memory::Locked()->BeginBatch(); }

char *UsedBlocks::Begin(const BufferUse &use, bool overwrites_all) {
  Memory::Locked memory;
  char *device =
      memory->Begin(use.block, use.buffer_id, use.size, overwrites_all);
  NoteUse(use);
  return device;
}

char *UsedBlocks::UseNow(Buffer *buffer, bool writes, bool overwrites_all) {
  return Begin({buffer->block, buffer->id, buffer->size, writes},
               overwrites_all);
}

void UsedBlocks::Publish() {
  Memory::Locked memory;
  Upkeep upkeep;
  for (Block *block : blocks_) {
    memory->Publish(block);
    --block->listings;
    if (block->listed_in == this) block->listed_in = nullptr;
  }
  blocks_.clear();
  NoteKnown();
  memory->DestroyFreedHostBlocks();
}

MemoryStatistics GetMemoryStatistics() { return Memory::Locked()->statistics; }

void ResetPeakMemory() {
  Memory::Locked memory;
  memory->statistics.peak_in_use = memory->statistics.in_use;
}

void ReleaseCachedBlocks() { Memory::Locked()->ReleaseCached(); }

}  // namespace mps_emulator
