// Device memory: buffers, their handles, and the separate copies for the host
// and for commands.  README.md describes the memory model.
//
// - Buffer: one allocation.  The buffer's *handle* is an address in a range of
//   reserved addresses without access rights (core/handle_space.h).  The handle
//   is the value of torch's storage().data() and of the id<MTLBuffer>.  If the
//   host reads or writes memory at the handle, the access faults at once
//   (core/host_fault.cc).  With MPS_EMULATOR_POINTERS=addresses,
//   storage().data() is [buffer contents] instead.  In a later release of
//   torch, storage().data() may be [buffer contents] on a Mac too.
// - Block: the memory of a buffer.  A freed block goes at once to the next
//   allocation of its size class on the same stream, even while commands that
//   use the block wait to run.  Such a command belongs to the block's former
//   buffer, but the command sees what the CPU writes to the new buffer.  A Mac
//   has the same write-after-read hazard.
//
// A block has up to three copies of its contents.  Each copy is allocated at
// its first use:
//
//   device     for commands
//   host       for the CPU: [buffer contents]
//   published  for each byte, the last value that host and device had in common
//
// Bytes move at two times only:
//
//   a command that uses   The CPU has written each byte of host that differs
//   the buffer starts     from published.  These bytes are copied to device.
//   a wait returns        Commands have written each word of device that
//                         differs from published.  These words are copied to
//                         host.
//
// So between two waits the CPU and commands may write different words (of 4
// bytes) of one buffer.  A tensor that only aten operators use has only the
// device copy, so no copies are compared.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/byte_ranges.h"
#include "core/poison.h"

namespace mps_emulator {

struct Block;

// Who asked for a buffer.  kTorch: torch's caching allocator, which reuses a
// freed block at once.  kDevice: a program, through the MTLDevice.  A freed
// block of kDevice is reused only when no work in flight uses the block.
enum class Origin { kTorch, kDevice };

struct Buffer {
  char *handle = nullptr;
  size_t size = 0;  // in bytes, as requested
  Origin origin = Origin::kTorch;
  // All allocations are numbered from 1: a later buffer has a larger id.
  uint64_t id = 0;
  std::atomic<int32_t> references{0};  // 0: freed, or never used
  Block *block = nullptr;              // nullptr once freed
  std::string *label = nullptr;        // the MTLBuffer's label; nullptr: none
  bool device_only = false;            // private storage: no host copy
  bool untracked = false;              // MTLResourceHazardTrackingModeUntracked
};

// Returns a buffer of `size` > 0 bytes with one reference; nullptr if no
// memory, or no handle, is left.
Buffer *AllocateBuffer(size_t size, Origin origin);

void RetainBuffer(Buffer *buffer);

// Drops one reference.  Frees the buffer if no reference is left.  Thread-safe.
void ReleaseBuffer(Buffer *buffer);

// The first address and the size of the range of all handles; both are 0 before
// the first buffer.
extern std::atomic<uintptr_t> handles_begin;
extern std::atomic<uintptr_t> handles_size;

// Returns whether `address` is in the address range of all handles.
inline bool IsHandleAddress(const void *address) {
  return reinterpret_cast<uintptr_t>(address) -
             handles_begin.load(std::memory_order_relaxed) <
         handles_size.load(std::memory_order_relaxed);
}

// Returns the buffer, live or freed, that has `address` in its range of handle
// addresses; nullptr if no buffer ever had the address.  Takes no lock, so a
// signal handler may call the function.
Buffer *FindBuffer(const void *address);

// Returns the live buffer whose handle is exactly `handle`, or nullptr.
Buffer *FindLiveBuffer(const void *handle);

// Like FindLiveBuffer(), but ends the program with a message if the buffer is
// freed, if `handle` is an address inside a buffer, or if `handle` belongs to
// no buffer.  `what` names the operation, e.g. "-[MTLBuffer contents]".
Buffer *RequireLiveBuffer(const void *handle, const char *what);

// Returns whether torch's data pointers are host addresses.  The environment
// variable MPS_EMULATOR_POINTERS decides: "addresses" and "unfindable" mean
// yes, "buffers", the default, means no.  "unfindable" emulates a torch whose
// getMTLBufferStorage() cannot find the buffer of an address.
bool PointersAreAddresses();

// Returns the data pointer of a storage in this buffer: the handle or, if
// PointersAreAddresses(), the address of the host copy.
char *DataPointer(Buffer *buffer);

// Returns the live buffer whose data pointer is exactly `pointer`, or nullptr.
Buffer *FindByPointer(const void *pointer);

// Like FindByPointer(), but ends the program with a message if there is no such
// buffer.  `what` names the operation.
Buffer *RequireByPointer(const void *pointer, const char *what);

// Returns the host copy of a live buffer.  The address stays the same for the
// buffer's lifetime.
char *HostContents(Buffer *buffer);

// ---- For the command queue (core/commands.h) and the torch operators.

// All bytes of a buffer.
inline constexpr ByteRange kAllBytes = {0, SIZE_MAX};

// A buffer that a command uses.  The use refers to the buffer's block: even if
// the buffer is freed before the command runs, the command uses that block.
// The block may then belong to another buffer.
struct BufferUse {
  Block *block = nullptr;
  uint64_t buffer_id = 0;
  size_t size = 0;
  bool writes = false;
  bool untracked = false;
  // The bytes that the command may use.
  ByteRange bytes = kAllBytes;
};

// Notes that a command will use `buffer` later.  The caller must end each
// announced use with EndUse().
BufferUse AnnounceUse(Buffer *buffer, bool writes, ByteRange bytes = kAllBytes);

// Returns the bytes that a command may read or write through `use`.
Accesses AccessesOf(const BufferUse &use);

// Announces that another command will use the buffer of `use`.  The buffer may
// have been freed.
BufferUse AnnounceUse(const BufferUse &use, bool writes);

// Ends an announced use, because the command has run or will never run.
void EndUse(const BufferUse &use);

// Ends the program if a command wrote past the end of the buffer.  `what`
// names the command.
void CheckRedzone(const BufferUse &use, const char *what);

// Returns whether the buffer of `use` is still live.
bool IsAlive(const BufferUse &use);

// Returns whether the order of commands is checked.  The value that the
// environment variable MPS_EMULATOR_CHECK_RACES had at the last
// UsedBlocks::BeginBatch() decides.
bool ChecksCommands();

// Keeps the contents that the host copies of buffers had when Take() was
// called.  Writes() compares the kept contents with the present contents.
class HostSnapshot {
 public:
  void Take(const std::vector<BufferUse> &uses);

  // Bytes [begin, end) of a buffer that the host has written since Take().
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

// The blocks that the commands of one command queue have used since the queue's
// last wait.
class UsedBlocks {
 public:
  // `label`: the label of the queue, for messages.
  explicit UsedBlocks(const std::string *label) : label_(label) {}

  // Begins a batch of commands.  The host's writes to a block are copied to the
  // device copy once in a batch, at the batch's first use of the block.
  static void BeginBatch();

  // Prepares the device copy of a buffer for a command that is about to run;
  // returns the copy's address.  `overwrites_all`: the command writes every
  // byte before it reads any byte, so new memory needs no poison.
  char *Begin(const BufferUse &use, bool overwrites_all = false);

  // Like Begin(), for work that runs at once.  Such work needs neither
  // AnnounceUse() nor EndUse().
  char *UseNow(Buffer *buffer, bool writes, bool overwrites_all = false,
               ByteRange bytes = kAllBytes);

  // Sets the name of the next command, for messages.
  void SetCommand(const char *name) { command_ = name; }

  // Notes which bytes of a buffer a command has read and written.  If the order
  // of commands is checked, ends the program if an earlier command of another
  // queue conflicts with this command and did not happen before it.  The check
  // comes after both commands have run, because the emulator does not know
  // earlier which bytes a kernel uses.
  void NoteAccesses(const BufferUse &use, Accesses accesses);

  // A vector clock: says which uses of buffers happened before some point.  The
  // key is the number of a queue.  The value n means that the first n uses of
  // this queue happened before the point.
  using VectorClock = std::map<uint64_t, uint64_t>;

  // Returns the uses that will have ended when all present commands of this
  // queue have ended.
  VectorClock Done() const;
  // Notes that later commands of this queue run after the uses in `ended`.  The
  // reason is that the queue waits for an MTLEvent, or that the program knew at
  // the commit that these uses had ended.
  void OrderAfter(const VectorClock &ended);

  // Notes that the program now knows that all commands of this queue so far
  // have ended.
  void NoteAllEnded();
  // Returns all uses of which the program knows that they have ended.
  static VectorClock KnownEnded();

  // These two functions count the command buffers that are committed but have
  // not run.
  static void NoteCommit();
  static void NoteRun();

  // Called when a wait returns: makes the results of commands visible to the
  // host.  Ends the program if the host wrote to a recycled block while a
  // command of the block's former buffer was in flight.
  void Publish();

 private:
  void NoteUse(const BufferUse &use);
  void NoteOperator(const BufferUse &use);

  // Queues are numbered from 1.
  const uint64_t number_ = [] {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }();
  std::vector<Block *> blocks_;
  const std::string *label_;
  const char *command_ = "a command";
  uint64_t done_ = 0;  // the number of this queue's uses so far
  VectorClock ordered_after_;
};

// ---- Statistics and limits, in bytes.

struct MemoryStatistics {
  size_t in_use;    // the blocks of live buffers of torch's allocator
  size_t reserved;  // all blocks, cached ones included
  size_t peak_in_use;
};
MemoryStatistics GetMemoryStatistics();
void ResetPeakMemory();

// Frees the cached blocks that no work in flight uses.
void ReleaseCachedBlocks();

}  // namespace mps_emulator
