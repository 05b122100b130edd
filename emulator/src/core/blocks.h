// For the files that implement memory.h and residency.h: the blocks behind
// buffers, and what happens to them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/copy_memory.h"
#include "core/counters.h"
#include "core/environment.h"
#include "core/handle_space.h"
#include "core/memory.h"
#include "core/stream.h"
#include "core/trace.h"

namespace mps_emulator {

// Installs the SIGSEGV handler, which names the buffer of a faulting address.
// Then the former action follows: the process dies of SIGSEGV, and Python's
// faulthandler prints its traceback.
void InstallHostFaultHandler();

// The memory behind a buffer; see the memory model in memory.h.
//
// A recycled block keeps its copies.  `*_user` is the id of the buffer for
// which a copy was last initialised; a younger buffer has a larger id.  A
// command of an older buffer must not initialise the copy again.
struct Block {
  SizeClass size_class;
  Origin origin;
  int stream = 0;  // torch's stream for which the block was last allocated

  char *device = nullptr;
  uint64_t device_user = 0;
  size_t device_size = 0;    // size of that buffer
  bool has_address = false;  // the program asked for the device copy's address

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

  // If the order of commands is checked: what commands have done, the latest
  // last, as far as commands may still come that are not ordered behind.
  struct Past {
    uint64_t queue;  // its number
    uint64_t done;   // the uses of the queue, with this one
    uint64_t buffer_id;
    Accesses accesses;
    std::string command;
    std::string queue_label;
  };
  std::vector<Past> past;
  bool is_owned = false;  // a live buffer owns the block

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

// The bytes behind a buffer must keep their pattern.  Every block has room for
// kMinRedzone, and a small copy for the device kTail bytes behind its capacity
// (core/copy_memory.h).  As a float, the pattern is 0.186, which changes by a
// sum with almost any number.
inline constexpr size_t kMinRedzone = 16;
inline constexpr size_t kMaxRedzone = kTail;
inline constexpr unsigned char kRedzonePattern = 0x3E;

class Memory {
 public:
  static Memory &Get() {
    // Never destroyed, because programs release buffers during exit too.
    static Memory *memory = new Memory;
    return *memory;
  }

  // Holds the lock for its lifetime.
  class Locked {
   public:
    Memory *operator->() const { return memory_; }

   private:
    Memory *memory_ = &Get();
    std::lock_guard<std::mutex> lock_{memory_->mutex_};
  };

  HandleSpace handles;

  // The caller of the functions below holds the lock.
  Buffer *Allocate(size_t size, Origin origin);
  void Free(Buffer *buffer);
  char *Expose(Buffer *buffer);
  char *Begin(Block *block, uint64_t buffer_id, size_t size,
              bool overwrites_all);
  BufferUse Announce(const BufferUse &use);
  void End(const BufferUse &use);
  void Publish(Block *block);
  // The block's device copy on pages of its own, at an address that stays.
  char *Address(Block *block);
  // The live buffers whose host copy's address is a data pointer.
  std::map<const void *, Buffer *> by_pointer;
  // The blocks with such an address.
  std::vector<Block *> addressed;
  size_t RedzoneOf(const Block *block, size_t size) const;
  void BeginBatch() {
    ++batch_;
    checks_commands = EnvironmentFlag("MPS_EMULATOR_CHECK_RACES");
  }
  void ReleaseCached();
  MemoryStatistics statistics{};
  bool checks_commands = false;
  UsedBlocks::Order known;  // UsedBlocks::Known()
  uint64_t committed = 0;   // the command buffers that will run

 private:
  Memory() {
    handles_size = handles.size();
    handles_begin = handles.begin();
    InstallHostFaultHandler();
  }

  Block *TakeBlock(size_t size, Origin origin);
  Buffer *Own(Block *block, size_t size);
  void Destroy(Block *block);
  char *MakeCopy(Block *block, bool for_device = false);
  void Destroy(std::vector<Block *> *blocks);
  void EnterHostWrites(Block *block);
  void EnterDeviceWrites(Block *block);
  void CheckNoHostWrites(const Block *block) const;

  std::mutex mutex_;
  CopyMemory copies_;
  // The free blocks, by origin, class and stream.  torch does not give the
  // memory of one stream to another one, whose work may overtake the former's.
  std::vector<Block *> free_[2][kNumSizeClasses][kStreams];
  uint64_t last_id_ = 0;
  uint64_t batch_ = 1;
};

}  // namespace mps_emulator
