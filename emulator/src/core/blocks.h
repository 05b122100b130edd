// Blocks, the memory of buffers, and the functions that allocate, update and
// free blocks.  Only the files that implement memory.h and residency.h need
// this header.
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

// Installs a handler of SIGSEGV, which prints the buffer to which the faulting
// address belongs.  Then the previous action for SIGSEGV runs, which ends the
// process.  Python's faulthandler, if it is enabled, prints a traceback first.
void InstallHostFaultHandler();

// The memory of a buffer.  memory.h describes the memory model.
//
// A recycled block keeps its copies.  device_user is the id of the buffer for
// which the device copy was last initialised.  host_user is the id of the
// buffer for which the host copy was last initialised.  A larger id belongs to
// a later buffer.  A command whose buffer has an id below device_user must not
// initialise the device copy again.
struct Block {
  SizeClass size_class;
  Origin origin;
  int stream = 0;  // the torch stream for which the block was last allocated

  char *device = nullptr;
  uint64_t device_user = 0;
  size_t device_size = 0;    // size of buffer device_user, in bytes
  bool has_address = false;  // the program asked for the device copy's address

  char *host = nullptr;
  char *published = nullptr;
  // Atomic, because HostContents() reads host_user without the lock.
  std::atomic<uint64_t> host_user{0};
  size_t host_size = 0;

  // pending counts the announced uses of the block that have not ended.
  // owners_pending counts only the uses of buffer owner_id, which is the
  // block's present buffer or, if the block is free, its last buffer.
  uint32_t pending = 0;
  uint32_t owners_pending = 0;
  uint64_t owner_id = 0;
  size_t owner_size = 0;
  uint64_t former_owner_id = 0;
  size_t former_owner_size = 0;
  // The device copy has results that no wait has published.
  bool unpublished_results = false;

  // The batch in which the host's writes were last copied to the device copy.
  uint64_t merged_in_batch = 0;

  uint32_t listings = 0;            // how many UsedBlocks list this block
  UsedBlocks *listed_in = nullptr;  // the UsedBlocks that last listed the block
  uint64_t last_use_id = 0;         // the id of the buffer that was last used

  // The bytes of buffer operator_user that operators have used since the last
  // wait, from the first byte to the last.  An operator runs at once here, but
  // on a Mac it may run at any time before the wait.
  ByteRange operator_bytes = {0, 0};
  uint64_t operator_user = 0;

  // What earlier commands did with the block, the latest command last.  The
  // list is empty unless the order of commands is checked.  An element is
  // removed if all future commands are ordered after the element's command, or
  // if a later command of the same queue covers the element's accesses.  If the
  // list is full, its oldest element is removed.
  struct Past {
    uint64_t queue;  // the queue's number
    uint64_t done;   // the number of this use among the queue's uses, from 1
    uint64_t buffer_id;
    Accesses accesses;
    std::string command;
    std::string queue_label;
  };
  std::vector<Past> past;
  bool is_owned = false;  // a live buffer owns the block

  // Whether work that uses a former buffer of the block is in flight.
  bool FormerOwnerInFlight() const {
    return pending != owners_pending || (listings && last_use_id < owner_id);
  }
  bool InFlight() const { return pending != 0 || listings != 0; }
  // True if the host copy belongs to the same buffer as the device copy, or to
  // a later buffer of the block.
  bool HostCounts() const {
    uint64_t user = host_user.load(std::memory_order_relaxed);
    return user != 0 && user >= device_user;
  }
};

// The time for which an Upkeep exists is added to the counter kUpkeep.  Inside
// an operator, an Upkeep counts nothing, because the operator's own time
// includes the upkeep.
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

// The redzone is the bytes after the end of a buffer.  If a command changes the
// pattern of the redzone, the command has written past the end.  Every block
// has at least kMinRedzone bytes for the redzone.  A small device copy has
// kTail more bytes after its capacity (core/copy_memory.h).  Four bytes of the
// pattern are the float 0.186.  A kernel that adds to this float changes it
// almost always.
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

  // While a Locked exists, the calling thread holds the memory's lock.
  class Locked {
   public:
    Memory *operator->() const { return memory_; }

   private:
    Memory *memory_ = &Get();
    std::lock_guard<std::mutex> lock_{memory_->mutex_};
  };

  HandleSpace handles;

  // The caller of the functions below must hold the lock.
  Buffer *Allocate(size_t size, Origin origin);
  void Free(Buffer *buffer);
  char *Expose(Buffer *buffer);
  char *Begin(Block *block, uint64_t buffer_id, size_t size,
              bool overwrites_all);
  BufferUse Announce(const BufferUse &use);
  void End(const BufferUse &use);
  void Publish(Block *block);
  // Returns the block's device copy.  From now on the copy has its own pages,
  // and the copy's address does not change.
  char *Address(Block *block);
  // Maps data pointers to live buffers.  Empty unless PointersAreAddresses().
  std::map<const void *, Buffer *> by_pointer;
  // The blocks for which Address() was called.
  std::vector<Block *> addressed;
  size_t RedzoneOf(const Block *block, size_t size) const;
  void BeginBatch() {
    ++batch_;
    checks_commands = EnvironmentFlag("MPS_EMULATOR_CHECK_RACES");
  }
  void ReleaseCached();
  MemoryStatistics statistics{};
  bool checks_commands = false;
  UsedBlocks::VectorClock known_ended;  // see UsedBlocks::KnownEnded()
  uint64_t committed = 0;  // the command buffers that are still to run

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
  void DestroyIdle(std::vector<Block *> *blocks);
  void EnterHostWrites(Block *block);
  void EnterDeviceWrites(Block *block);
  void CheckNoHostWrites(const Block *block) const;
  void CheckNoHostWritesUnderOperators(const Block *block) const;

  std::mutex mutex_;
  CopyMemory copies_;
  // The free blocks, by origin, size class and stream.  As in torch, a stream
  // does not reuse a free block of another stream, because the other stream may
  // still have work that uses the block.
  std::vector<Block *> free_[2][kNumSizeClasses][kStreams];
  uint64_t last_id_ = 0;
  uint64_t batch_ = 1;
};

}  // namespace mps_emulator
