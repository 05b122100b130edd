// Device memory: buffers, the handles that name them, and the separate copies
// that the host and the commands see.
//
// THE MEMORY MODEL
//
// A Mac has unified memory: one copy, which host and GPU share.  What makes a
// program right or wrong there is *when* the host touches it: work given to
// the GPU runs some time between its commit and the return of a wait.  The
// emulator makes that time window visible by giving host and device a copy
// each, so that a program that does not wait sees old or poisoned bytes every
// time, and not only when it is unlucky.
//
// - Buffer: one allocation.  Its *handle* is what torch's storage().data() and
//   an id<MTLBuffer> hold.  It is an address inside a reservation that nobody
//   can read or write, so that using it as host memory faults at once
//   (core/host_fault.h says which buffer and which byte).
// - Block: the memory behind a buffer.  Freed blocks are handed to the next
//   allocation of their size class at once, as torch's caching allocator does,
//   even while commands that use them wait to run; handles are reused late.
//
// A block has up to three copies, each made when it is first needed:
//
//   device     what commands read and write
//   host       what the CPU sees: [buffer contents]
//   published  the host copy as it was when host and device last agreed
//
// Bytes go from one to the other at two moments only:
//
//   a command that uses the buffer starts   bytes where host differs from
//                                           published were written by the CPU:
//                                           they enter the device copy
//   a wait returns                          words where device differs from
//                                           published were written by the
//                                           awaited commands: they enter the
//                                           host and the published copy
//
// So CPU writes between waits reach the next command that uses the buffer,
// results reach the CPU only through a wait, and CPU and commands may write
// different bytes of one buffer without disturbing each other.
//
// A buffer whose contents nobody asked for has no host copy: a tensor that
// only aten operators use costs one copy and no comparison.  Where contents
// are asked for the first time while the device copy holds results that no
// wait has published, the whole host copy is poison until the next wait.
//
// Fresh memory is filled with kPoison on both sides.  Where a recycled block
// still has commands of its former buffer waiting, those see the CPU writes
// of the new one: that is the write-after-read hazard of a Mac.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace mps_emulator {

// Every byte of memory that nothing has written.
inline constexpr unsigned char kPoison = 0xC7;

struct Block;

// Where a buffer's memory comes from.  torch's caching allocator recycles
// blocks at once; a buffer that a program gets from the MTLDevice is new memory
// and is given back only when no command uses it any more; host memory belongs
// to the program.
enum class Origin { kTorch, kDevice, kHost };

struct Buffer {
  char *handle = nullptr;
  size_t size = 0;  // bytes asked for
  Origin origin = Origin::kTorch;
  // Counts from 1 over all allocations; a larger id is a younger buffer.
  uint64_t id = 0;
  std::atomic<int32_t> references{0};  // 0: freed, or never used
  Block *block = nullptr;              // nullptr once freed
  std::string *label = nullptr;        // the MTLBuffer's; nullptr: none
  bool device_only = false;            // private storage: no host copy
};

// Returns a buffer with one reference.  `size` is in bytes and not 0.
// Returns nullptr if the machine has no memory left.
Buffer *AllocateBuffer(size_t size, Origin origin);

// A buffer whose host copy is the caller's own memory (newBufferWithBytesNoCopy
// on a Mac).  `deallocator` is called once nothing uses the buffer any more.
Buffer *WrapHostMemory(void *memory, size_t size,
                       std::function<void()> deallocator);

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

// The buffer, live or freed, whose handle range holds `address`; nullptr if
// there never was one.  Takes no lock and may be called in a signal handler.
Buffer *FindBuffer(const void *address);

// The live buffer whose handle is exactly `handle`, or nullptr.
Buffer *FindLiveBuffer(const void *handle);

// As FindLiveBuffer(), but ends the program with a message that says what is
// wrong with `handle` (freed, interior, not a handle at all).  `what` names
// what was being done, e.g. "-[MTLBuffer contents]".
Buffer *RequireLiveBuffer(const void *handle, const char *what);

// The host copy of a live buffer.  Its address stays the same for as long as
// the buffer lives.
char *HostContents(Buffer *buffer);

// ---- For the command queue (core/commands.h) and the torch operators.

// One use of a buffer by a command.  Holds the block, not the buffer: when the
// buffer is freed before the command has run, the command goes on using the
// block, which may by then belong to another buffer.
struct BufferUse {
  Block *block = nullptr;
  uint64_t buffer_id = 0;
  size_t size = 0;
  bool writes = false;
};

// Announces a command that waits to run.  Every use that was announced must
// come to an end with EndUse().
BufferUse AnnounceUse(Buffer *buffer, bool writes);

// One more command with the buffer of `use`, which may have been freed since.
BufferUse AnnounceUse(const BufferUse &use, bool writes);

// The command has run, or never will.
void EndUse(const BufferUse &use);

// Ends the program if a command wrote past the end of the buffer.  `what`
// names the command.
void CheckRedzone(const BufferUse &use, const char *what);

// Whether a command's buffer has not been freed since the command was encoded.
bool IsAlive(const BufferUse &use);

// Whether what has to be ordered by the program is checked: the environment
// variable MPS_EMULATOR_CHECK_RACES, as it was at the last BeginBatch().
bool ChecksCommands();

// The host copies of buffers at one moment.  A later comparison shows which
// bytes the host has written.
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

// The blocks that commands of one command queue used since its last wait.
class UsedBlocks {
 public:
  // `label`: the queue's, for messages.
  explicit UsedBlocks(const std::string *label) : label_(label) {}

  // The commands that follow run without a break for the waiting thread: host
  // writes enter a block's device copy once, at the block's first use.
  static void BeginBatch();

  // A command is about to run: brings the device copy of a buffer that it uses
  // up to date and returns its address.  `overwrites_all`: the command writes
  // every byte of the buffer before it reads any, so fresh memory need not be
  // poisoned.
  char *Begin(const BufferUse &use, bool overwrites_all = false);

  // The same for work that runs at once, without announcement and EndUse().
  char *UseNow(Buffer *buffer, bool writes, bool overwrites_all = false);

  bool empty() const { return blocks_.empty(); }

  // What runs next, for messages.
  void SetCommand(const char *name) { command_ = name; }

  // A command has been committed that will use a buffer: from now on it may
  // run at any time.  Noted where the order of commands is checked.
  void NoteCommitted(const BufferUse &use, const char *command);

  // How much this queue has done so far.  Where another queue waits for that
  // (MTLEvent), the other queue's OrderAfter() is called with it.
  uint64_t done() const { return done_; }
  void OrderAfter(const UsedBlocks *other, uint64_t done);

  // The program knows that this queue's commands so far have been done.
  void NoteKnown() { known_ = done_; }

  // A wait returns: makes what commands wrote visible to the host.  Ends the
  // program where the host wrote to a recycled block while a command on its
  // former buffer was in flight.
  void Publish();

 private:
  void NoteUse(const BufferUse &use);
  void CheckOrder(const BufferUse &use);

  std::vector<Block *> blocks_;
  const std::string *label_;
  const char *command_ = "a command";
  uint64_t done_ = 0;   // counts uses
  uint64_t known_ = 0;  // those that the program knows to be done
  std::map<const UsedBlocks *, uint64_t> ordered_after_;
};

// ---- Statistics and limits, in bytes.

struct MemoryStatistics {
  size_t in_use;    // blocks of live buffers that torch allocated
  size_t reserved;  // all blocks, cached ones included
  size_t peak_in_use;
};
MemoryStatistics GetMemoryStatistics();
void ResetPeakMemory();

// Gives cached blocks that no command uses back to the system.
void ReleaseCachedBlocks();

}  // namespace mps_emulator
