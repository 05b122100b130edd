// Finds data races of kernels: two threads access a byte, at least one of them
// writes, at most one access is atomic, and nothing orders the accesses.
//
// Only Metal's rules order accesses.  The order in which the emulator runs
// threads does not count, so the checker finds a race under every schedule:
//
// - threadgroup_barrier orders the threads of a threadgroup, for the kinds of
//   memory that its flags name;
// - simdgroup_barrier orders the threads of a SIMD group;
// - atomic_thread_fence with memory_order_seq_cst, before an atomic write and
//   behind an atomic read of the written value, orders threadgroups.
//
// The checker also finds reads of unwritten threadgroup memory, and accesses
// outside of a kernel's buffers.
//
// The checker needs instrumented kernels: see CheckRaces().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/limits.h"
#include "msl/msl.h"

namespace mps_emulator::msl {

// The environment variable MPS_EMULATOR_CHECK_RACES, read at every call.
bool CheckRaces();

// A piece of threadgroup memory: an argument at index `argument`, or one of
// the kernel's variables (-1).
struct ThreadgroupPiece {
  size_t offset;
  size_t bytes;
  int argument;
};

class RaceChecker {
 public:
  // A dispatch begins, with `threadgroup_bytes` of threadgroup memory from
  // `threadgroup_memory` on.  `launch`, which kernels read, and `pieces`, the
  // kernel's parts of threadgroup memory, belong to the executor.
  void Begin(const Dispatch &dispatch, const mps_emulator_msl_launch *launch,
             const char *threadgroup_memory, size_t threadgroup_bytes,
             const std::vector<ThreadgroupPiece> *pieces);
  // A threadgroup of `threads` threads begins, at the position in `launch`.
  void BeginThreadgroup(unsigned threads);

  // The dispatch has ended.
  void End();

  // A threadgroup has ended.  Calls Fatal() for the first fault that Access()
  // has noted.  Access() does not do so itself: Fatal() may throw, and no
  // exception may pass through the kernel's code.
  void EndThreadgroup() const;

  // Thread number `thread` of the threadgroup is about to access memory.
  // flags: of kMpsEmulatorMslWrite and kMpsEmulatorMslAtomic.
  // place: an address in the kernel's code, behind the access.
  void Access(unsigned thread, const void *address, size_t size, unsigned flags,
              const void *place);

  // The first fault; empty without one.
  const std::string &failure() const { return failure_; }

  // Metal's mem_flags.
  void PassThreadgroupBarrier(unsigned mem_flags);
  void PassSimdgroupBarrier(unsigned thread, unsigned mem_flags);
  void Fence(unsigned thread, unsigned mem_flags);

  // A simdgroup function gave a thread the value of an inactive lane.
  void ReadInactiveLane(unsigned thread, unsigned lane, unsigned line);
  // A thread is about to use an index that an array or a vector lacks; `type`
  // is clang's name of its type.
  void UseOutsideOfArray(unsigned thread, const char *type, long index,
                         unsigned line);
  // A thread converts a float to an integer type that lacks its value; `type`
  // is clang's name of that type.
  void ConvertOutside(unsigned thread, float value, const char *type,
                      unsigned line);

 private:
  enum Memory { kDevice, kThreadgroup, kMemories };

  // An access to some of the four bytes of a word.
  struct Record {
    bool Writes() const { return flags & kMpsEmulatorMslWrite; }
    bool IsAtomic() const { return flags & kMpsEmulatorMslAtomic; }
    // Whether two accesses conflict, unless something orders them.
    bool ConflictsWith(const Record &other) const {
      return (bytes & other.bytes) && (Writes() || other.Writes()) &&
             !(IsAtomic() && other.IsAtomic());
    }

    uint32_t group;
    uint32_t epoch;       // threadgroup barriers before it
    uint32_t simd_epoch;  // simdgroup barriers before it
    uint32_t fence;       // fences of the thread before it
    uint16_t thread;
    uint8_t bytes;  // bit i: byte i of the word
    uint8_t flags;
    const void *place;
  };
  using Word = std::vector<Record>;

  // An access of an earlier dispatch that may run at the same time.
  struct Former {
    Record record;
    std::string kernel;
  };

  // The accesses of a threadgroup that surely have happened: all accesses of
  // earlier epochs, and in this epoch those of some threads up to a fence.
  struct Progress {
    uint32_t epoch = 0;
    std::map<uint16_t, uint32_t> fences;  // by threads
  };
  using Clock = std::map<uint32_t, Progress>;

  struct Thread {
    uint32_t simd_epoch[kMemories] = {};
    uint32_t fence = 0;
    Clock past;      // what has happened before the thread's present access
    Clock released;  // what an atomic write passes on, since the last fence
    Clock seen;      // what atomic reads received, before the next fence
  };

  // A buffer that the kernel may access.
  struct Buffer {
    // Whether all of an access to `extent` bytes is within it.
    bool Has(uintptr_t address, size_t extent) const {
      return address - begin < size && extent <= size - (address - begin);
    }

    const Parameter *parameter;
    uintptr_t begin;
    size_t size;
    bool may_be_constant;  // a `constant` buffer shares some of these bytes
  };

  // A page of device memory: a bit for each byte that was read, or written.
  struct Touched {
    uint8_t read[kPage / 8] = {};
    uint8_t written[kPage / 8] = {};
  };
  struct RecentPage {
    uintptr_t page = 0;
    Touched *touched = nullptr;
  };

  static void Join(Clock *clock, const Clock &other);

  // What the dispatch has read and written of device memory.
  Accesses AccessesSoFar() const;
  void NoteTouched(uintptr_t word, const Record &record);

  // Accesses of earlier dispatches, and of the host.
  void CheckOthers(uintptr_t word, const Record &record);

  void AccessWord(unsigned thread, uintptr_t word, const Record &record,
                  Memory memory);
  bool IsOrdered(const Record &before, const Record &now) const;
  Word &WordAt(uintptr_t word, Memory memory);
  // Whether an access is within a bound buffer; notes an access just outside.
  bool IsInBuffer(unsigned thread, uintptr_t begin, size_t size, unsigned flags,
                  const void *place);
  // Whether an access is within the kernel's threadgroup memory.
  bool IsInPiece(unsigned thread, uintptr_t begin, size_t size, unsigned flags,
                 const void *place);
  void CheckInitialized(unsigned thread, uintptr_t begin, size_t size,
                        unsigned flags, const void *place);

  void Report(const Record &before, const Record &now, uintptr_t address,
              Memory memory);
  std::string DescribeAccess(const Record &record) const;
  std::string Name(unsigned thread, uint32_t group) const;
  // Reports an access outside of the kernel's memory.
  void NoteOutside(unsigned thread, size_t size, unsigned flags,
                   const std::string &where, const void *place);
  std::string DescribeAddress(uintptr_t address, Memory memory) const;

  const Dispatch *dispatch_ = nullptr;
  const mps_emulator_msl_launch *launch_ = nullptr;
  uintptr_t threadgroup_begin_ = 0;
  size_t threadgroup_bytes_ = 0;
  const std::vector<ThreadgroupPiece> *pieces_ = nullptr;
  uint32_t group_ = 0;
  uint32_t epoch_[kMemories] = {};
  bool fences_used_ = false;
  std::string failure_;  // the first failure, which ends the checks
  std::vector<Thread> threads_;
  std::vector<Buffer> buffers_;
  const Buffer *recent_ = nullptr;    // the buffer of the last access
  uintptr_t library_pages_[8];        // numbers of pages of a kernel's library
  std::vector<uint8_t> initialized_;  // of each byte of threadgroup memory
  std::unordered_map<uintptr_t, Word> device_words_;  // by their addresses
  std::map<uintptr_t, Touched> touched_;  // by the numbers of pages
  RecentPage recent_pages_[8];
  std::vector<Word> threadgroup_words_;
  std::vector<size_t> used_words_;  // the indexes of words with records
  // What atomic writes have passed on, by the addresses of atomic objects.
  std::unordered_map<uintptr_t, Clock> passed_on_;
  uint64_t concurrent_group_ = 0;
  std::unordered_map<uintptr_t, std::vector<Former>> former_;
};

}  // namespace mps_emulator::msl
