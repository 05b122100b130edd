// Finds data races of kernels: two threads access a byte, at least one of them
// writes, at most one access is atomic, and neither happens before the other.
// This is a happens-before checker, with a vector clock for each thread.
//
// Only Metal's rules order accesses.  The checker ignores the order in which
// the emulator runs threads, so it finds a race under every schedule.  The
// rules are:
//
// - threadgroup_barrier orders the threads of a threadgroup, for the kinds of
//   memory that its flags name.
// - simdgroup_barrier orders the threads of a simdgroup.
// - atomic_thread_fence with memory_order_seq_cst orders threadgroups, if one
//   thread calls the fence before an atomic write, and another thread calls the
//   fence after an atomic read of the written value.
//
// The checker also finds reads of unwritten threadgroup memory, and accesses
// outside of a kernel's buffers.
//
// The checker needs kernels that report their accesses: see CheckRaces().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/limits.h"
#include "msl/kernel_memory.h"
#include "msl/msl.h"

namespace mps_emulator::msl {

// Returns whether races are checked: the value of the environment variable
// MPS_EMULATOR_CHECK_RACES at this call.  If so, Compile() makes kernels that
// report their accesses.
bool CheckRaces();

class RaceChecker {
 public:
  // Begins a dispatch.  The threadgroup memory begins at `threadgroup_memory`
  // and has `threadgroup_bytes` bytes.  Kernels read their position from
  // `launch`.  `pieces` are the kernel's parts of threadgroup memory.  The
  // executor owns `launch` and `pieces`.
  void Begin(const Dispatch &dispatch, const mps_emulator_msl_launch *launch,
             const char *threadgroup_memory, size_t threadgroup_bytes,
             const std::vector<ThreadgroupPiece> *pieces);
  // Begins a threadgroup of `threads` threads, at the position in `launch`.
  void BeginThreadgroup(unsigned threads);

  // Ends the dispatch.
  void End();

  // Ends a threadgroup.  Calls Fatal() for the first fault that Access() has
  // noted.  Access() does not call Fatal() itself: Fatal() may throw, and no
  // exception may pass through the kernel's code.
  void EndThreadgroup() const;

  // Checks an access that thread number `thread` of the threadgroup is about to
  // make.
  // flags: a combination of bits of abi.h, such as kMpsEmulatorMslWrite.
  // place: the address of the kernel's code that follows the access.
  void Access(unsigned thread, const void *address, size_t size, unsigned flags,
              const void *place);

  // Returns the first fault; empty if there is none.
  const std::string &failure() const { return failure_; }

  // The executor calls these functions when threads pass a barrier, or when a
  // thread passes a fence.  `mem_flags` has the bits of metal::mem_flags.
  void PassThreadgroupBarrier(unsigned mem_flags);
  void PassSimdgroupBarrier(unsigned thread, unsigned mem_flags);
  void Fence(unsigned thread, unsigned mem_flags);

  // Notes that a simdgroup function gave a thread the value of an inactive
  // lane.
  void ReadInactiveLane(unsigned thread, unsigned lane, unsigned line);
  // Notes that a thread is about to use an index outside of an array or a
  // vector.  `type` is clang's name for the type of the array or vector.
  void UseOutsideOfArray(unsigned thread, const char *type, long index,
                         unsigned line);
  // Notes that a thread converts a float to an integer type that cannot
  // represent the float's value.  `type` is clang's name of the integer type.
  void ConvertOutside(unsigned thread, float value, const char *type,
                      unsigned line);

 private:
  enum Memory { kDevice, kThreadgroup, kMemories };

  // An access to some of the four bytes of a word.
  struct Record {
    bool Writes() const { return flags & kMpsEmulatorMslWrite; }
    bool IsAtomic() const { return flags & kMpsEmulatorMslAtomic; }
    // Whether two accesses are a race if nothing orders them.
    bool ConflictsWith(const Record &other) const {
      return (bytes & other.bytes) && (Writes() || other.Writes()) &&
             !(IsAtomic() && other.IsAtomic());
    }

    uint32_t group;
    uint32_t epoch;       // threadgroup barriers before the access
    uint32_t simd_epoch;  // simdgroup barriers before the access
    uint32_t fence;       // the thread's fences before the access
    uint16_t thread;
    uint8_t bytes;  // bit i: byte i of the word
    uint8_t flags;
    const void *place;
  };
  using Word = std::vector<Record>;

  // An access of an earlier dispatch that may run at the same time as the
  // present dispatch.
  struct Former {
    Record record;
    std::string kernel;
  };

  // The part of a vector clock that belongs to a threadgroup.  These of its
  // accesses happened before the clock's point: all accesses of
  // epochs before `epoch`, and those accesses in `epoch` that precede one of
  // `fences`.
  struct Progress {
    uint32_t epoch = 0;
    std::map<uint16_t, uint32_t> fences;  // the last fence of each thread
  };
  using Clock = std::map<uint32_t, Progress>;  // by threadgroup

  struct Thread {
    uint32_t simd_epoch[kMemories] = {};
    uint32_t fence = 0;
    Clock past;      // what has happened before the thread's next access
    Clock released;  // what the thread's atomic writes pass on to readers
    Clock seen;      // what atomic reads received; added to `past` by fences
  };

  // The accesses to a page of device memory: a bit for each byte.
  struct Touched {
    uint8_t read[kPage / 8] = {};
    uint8_t written[kPage / 8] = {};
  };
  struct RecentPage {
    uintptr_t page = 0;
    Touched *touched = nullptr;
  };

  static void Join(Clock *clock, const Clock &other);

  // Returns the device memory that the dispatch has read and written so far.
  Accesses AccessesSoFar() const;
  void NoteTouched(uintptr_t word, const Record &record);

  // Reports an access that conflicts with an earlier dispatch of the same
  // concurrent group, or with a write of the host.
  void CheckOthers(uintptr_t word, const Record &record);

  void AccessWord(unsigned thread, uintptr_t word, const Record &record,
                  Memory memory);
  bool HappensBefore(const Record &before, const Record &now) const;
  Word &WordAt(uintptr_t word, Memory memory);
  // Reports a write to a buffer, if the bytes also belong to `constant` memory.
  void CheckConstant(unsigned thread, uintptr_t begin, size_t size,
                     const void *place);
  void CheckInitialized(unsigned thread, uintptr_t begin, size_t size,
                        unsigned flags, const void *place);

  void Report(const Record &before, const Record &now, uintptr_t address,
              Memory memory);
  std::string DescribeAccess(const Record &record) const;
  std::string Name(unsigned thread, uint32_t group) const;
  // Reports an access outside of the kernel's memory.
  void NoteOutside(unsigned thread, size_t size, unsigned flags,
                   const KernelMemory::Found &found, const void *place);
  std::string DescribeAddress(uintptr_t address, Memory memory) const;

  const Dispatch *dispatch_ = nullptr;
  const mps_emulator_msl_launch *launch_ = nullptr;
  size_t threadgroup_bytes_ = 0;
  KernelMemory memory_;
  uint32_t group_ = 0;
  uint32_t epoch_[kMemories] = {};
  bool fences_used_ = false;
  std::string failure_;  // the first failure, which ends the checks
  std::vector<Thread> threads_;
  std::vector<uint8_t> initialized_;  // 1: this threadgroup byte is written
  std::unordered_map<uintptr_t, Word> device_words_;  // by address
  std::map<uintptr_t, Touched> touched_;              // by page number
  RecentPage recent_pages_[8];
  std::vector<Word> threadgroup_words_;
  std::vector<size_t> used_words_;  // the indexes of words with records
  // For the address of each atomic object: what atomic writes have passed on.
  std::unordered_map<uintptr_t, Clock> passed_on_;
  uint64_t concurrent_group_ = 0;
  std::unordered_map<uintptr_t, std::vector<Former>> former_;
};

}  // namespace mps_emulator::msl
