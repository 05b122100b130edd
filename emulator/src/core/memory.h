// Device memory: buffers, their handles, and the separate copies for the host
// and for commands.  README.md describes the memory model.
//
// - Buffer: one allocation.  Its *handle* is the value of torch's
//   storage().data() and of an id<MTLBuffer>: an address in a reservation
//   without access rights.  A use of the handle as host memory faults at once
//   (core/host_fault.cc).  With MPS_EMULATOR_POINTERS=addresses,
//   storage().data() is [buffer contents] instead, as a later torch may have
//   it.
// - Block: the memory behind a buffer.  The next allocation of the size class
//   on the same stream gets a freed block at once, even while commands that use
//   the block wait to run.  If such a command belongs to the block's former
//   buffer, it sees the CPU's writes to the new buffer: the write-after-read
//   hazard of a Mac.
//
// A block has up to three copies.  Each is made at its first use:
//
//   device     for commands
//   host       for the CPU: [buffer contents]
//   published  the host copy at the time when host and device last agreed
//
// Bytes move at two times only:
//
//   a command that uses the buffer starts   The CPU's writes (bytes that differ
//                                           between host and published) enter
//                                           the device copy.
//   a wait returns                          The commands' writes (words that
//                                           differ between device and
//                                           published) enter host and
//                                           published.
//
// So the CPU and commands may write different bytes of one buffer.  A tensor
// that only aten operators use costs one copy and no comparison.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/byte_ranges.h"

namespace mps_emulator {

// The value of every byte that was never written.
inline constexpr unsigned char kPoison = 0xC7;

struct Block;

// The origin of a buffer's memory.  torch's caching allocator recycles blocks
// at once.  A buffer from the MTLDevice has new memory, which returns only when
// no command uses it.
enum class Origin { kTorch, kDevice };

struct Buffer {
  char *handle = nullptr;
  size_t size = 0;  // bytes asked for
  Origin origin = Origin::kTorch;
  // Counts from 1 over all allocations: a younger buffer has a larger id.
  uint64_t id = 0;
  std::atomic<int32_t> references{0};  // 0: freed, or never used
  Block *block = nullptr;              // nullptr once freed
  std::string *label = nullptr;        // the MTLBuffer's label; nullptr: none
  bool device_only = false;            // private storage: no host copy
  bool untracked = false;              // MTLResourceHazardTrackingModeUntracked
};

// Returns a buffer of `size` > 0 bytes with one reference; nullptr if the
// machine has no memory left.
Buffer *AllocateBuffer(size_t size, Origin origin);

void RetainBuffer(Buffer *buffer);

// Drops one reference; the last one frees the buffer.  Thread-safe.
void ReleaseBuffer(Buffer *buffer);

// The reservation of handles; 0 and 0 until the first buffer.
extern std::atomic<uintptr_t> handles_begin;
extern std::atomic<uintptr_t> handles_size;

// True if `address` lies in the reservation of handles.
inline bool IsHandleAddress(const void *address) {
  return reinterpret_cast<uintptr_t>(address) -
             handles_begin.load(std::memory_order_relaxed) <
         handles_size.load(std::memory_order_relaxed);
}

// The buffer, live or freed, whose handle range contains `address`; nullptr if
// there was none.  Takes no lock; a signal handler may call it.
Buffer *FindBuffer(const void *address);

// The live buffer whose handle is exactly `handle`, or nullptr.
Buffer *FindLiveBuffer(const void *handle);

// FindLiveBuffer() that ends the program with a message if `handle` is freed,
// interior or no handle.  `what` names the operation, e.g. "-[MTLBuffer
// contents]".
Buffer *RequireLiveBuffer(const void *handle, const char *what);

// Whether torch's data pointers are host addresses, by MPS_EMULATOR_POINTERS:
// "buffers", the default; "addresses"; "unfindable", addresses where torch's
// header has no way from an address to the buffer.
bool PointersAreAddresses();

// The data pointer of a storage with this buffer: the handle, or the address of
// the host copy.
char *DataPointer(Buffer *buffer);

// The live buffer whose data pointer is exactly `pointer`, or nullptr.
Buffer *FindByPointer(const void *pointer);

// FindByPointer() that ends the program with a message if there is none.
Buffer *RequireByPointer(const void *pointer, const char *what);

// The host copy of a live buffer, at the same address for the buffer's
// lifetime.
char *HostContents(Buffer *buffer);

// ---- For the command queue (core/commands.h) and the torch operators.

// The whole of a buffer.
inline constexpr ByteRange kAllBytes = {0, SIZE_MAX};

// One use of a buffer by a command.  The use refers to the block: if the buffer
// is freed before the command runs, the command still uses the block, which may
// then belong to another buffer.
struct BufferUse {
  Block *block = nullptr;
  uint64_t buffer_id = 0;
  size_t size = 0;
  bool writes = false;
  bool untracked = false;
  // The bytes that the command may use.
  ByteRange bytes = kAllBytes;
};

// Announces a command that waits to run.  Each announced use must end with
// EndUse().
BufferUse AnnounceUse(Buffer *buffer, bool writes, ByteRange bytes = kAllBytes);

// All bytes that a command with this use may access.
Accesses AccessesOf(const BufferUse &use);

// Announces another command with the buffer of `use`, which may be freed by
// now.
BufferUse AnnounceUse(const BufferUse &use, bool writes);

// The command has run, or will never run.
void EndUse(const BufferUse &use);

// Ends the program if a command wrote past the end of the buffer.  `what`
// names the command.
void CheckRedzone(const BufferUse &use, const char *what);

// Whether a command's buffer has not been freed since the command was encoded.
bool IsAlive(const BufferUse &use);

// Whether the emulator checks the program's order of commands: the value of the
// environment variable MPS_EMULATOR_CHECK_RACES at the last BeginBatch().
bool ChecksCommands();

// The host copies of buffers at one time.  A later comparison gives the bytes
// that the host has written.
class HostSnapshot {
 public:
  void Take(const std::vector<BufferUse> &uses);

  // Bytes [begin, end) of a buffer that the host has written since.
  struct Write {
    uint64_t buffer_id;
    size_t begin;
    size_t end;
  };
  std::vector<Write> Writes() const;

 private:
  struct Contents {
    BufferUse use;
    std::string bytes;
  };
  std::vector<Contents> contents_;
};

// The blocks that a command queue's commands used since its last wait.
class UsedBlocks {
 public:
  // `label`: the label of the queue, for messages.
  explicit UsedBlocks(const std::string *label) : label_(label) {}

  // The next commands run as one batch: the host's writes enter a block's
  // device copy once, at the block's first use in the batch.
  static void BeginBatch();

  // Updates the device copy of a buffer before a command that uses it; returns
  // the copy's address.  `overwrites_all`: the command writes every byte before
  // it reads any, so fresh memory needs no poison.
  char *Begin(const BufferUse &use, bool overwrites_all = false);

  // The same for work that runs at once, without an announcement and EndUse().
  char *UseNow(Buffer *buffer, bool writes, bool overwrites_all = false,
               ByteRange bytes = kAllBytes);

  // Names the next command for messages.
  void SetCommand(const char *name) { command_ = name; }

  // A command has run.  If the order of commands is checked, ends the program
  // if another queue's command conflicts with this one, and nothing orders the
  // two.  A conflict shows only when both have run: before, nobody knows which
  // bytes a kernel uses.
  void NoteAccesses(const BufferUse &use, Accesses accesses);

  // Commands that have ended: by the numbers of queues, how many uses of each.
  using Order = std::map<uint64_t, uint64_t>;

  // What has ended when this queue's commands so far have ended.
  Order Done() const;
  // The later commands of this queue run behind these: a wait for an MTLEvent,
  // or what the program knew at the commit.
  void OrderAfter(const Order &ended);

  // The program knows that this queue's commands so far have ended.
  void NoteKnown();
  // All that the program knows to have ended.
  static Order Known();

  // A command buffer was committed; such a command buffer has run.
  static void NoteCommit();
  static void NoteRun();

  // A wait returns: makes the results of commands visible to the host.  Ends
  // the program if the host wrote to a recycled block while a command on its
  // former buffer was in flight.
  void Publish();

 private:
  void NoteUse(const BufferUse &use);

  // Numbers count from 1 over all queues.
  const uint64_t number_ = [] {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }();
  std::vector<Block *> blocks_;
  const std::string *label_;
  const char *command_ = "a command";
  uint64_t done_ = 0;  // counts uses
  Order ordered_after_;
};

// ---- Statistics and limits, in bytes.

struct MemoryStatistics {
  size_t in_use;    // the blocks of live buffers of torch's allocator
  size_t reserved;  // all blocks, cached ones included
  size_t peak_in_use;
};
MemoryStatistics GetMemoryStatistics();
void ResetPeakMemory();

// Returns cached blocks that no command uses to the system.
void ReleaseCachedBlocks();

}  // namespace mps_emulator
