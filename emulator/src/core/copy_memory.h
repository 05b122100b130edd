// Plain memory for the copies of a block.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "core/limits.h"

namespace mps_emulator {

// Capacities come in size classes, four to a doubling, so that a freed copy
// fits the next request of about the same size.
struct SizeClass {
  unsigned index;
  size_t capacity;  // bytes
};

// The smallest class that holds `size` bytes.  `size` is at most 2^40.
SizeClass SizeClassOf(size_t size);

inline constexpr unsigned kNumSizeClasses = 160;

// The bytes behind the capacity of a small copy for the device, which belong to
// the copy too: a kernel that overruns its buffer writes there first.
inline constexpr size_t kTail = 1024;

// Small copies come from malloc.  A large copy is a mapping of its own, with
// a page behind it that faults.  A read far past the end of a small copy goes
// unnoticed.  With MPS_EMULATOR_GUARD=1 every copy ends at a zone of 64 MiB
// that faults; Linux' limit on mappings then allows about 10,000 live buffers.
class CopyMemory {
 public:
  CopyMemory();

  // True with MPS_EMULATOR_GUARD=1.
  bool guards_everything() const { return guards_everything_; }

  // Returns `capacity` uninitialised bytes, aligned to 64 (16 for guarded
  // copies); nullptr if no memory is left.
  char *Allocate(size_t capacity);

  // The bytes of a copy for the device: the capacity, and the tail if it is
  // small.
  size_t DeviceBytes(size_t capacity) const {
    return IsLarge(capacity) ? capacity : capacity + kTail;
  }
  char *AllocateForDevice(size_t capacity);

  // The same for the device on pages that no other copy has.
  char *AllocatePages(size_t capacity);

  // A guarded copy's address stays unused for the next kMostFreed calls.
  void Free(char *memory, size_t capacity);

  // For a signal handler: prints the mistake if `address` is in a freed copy,
  // or in the zone behind a copy.  Takes no lock.
  static void PrintFault(const void *address);

 private:
  static constexpr size_t kLargeBytes = size_t{256} << 10;

  bool IsLarge(size_t capacity) const {
    return guards_everything_ || capacity >= kLargeBytes;
  }

  // The bytes behind a large copy that fault.
  size_t GuardBytes() const;

  static constexpr size_t kMostFreed = 4096;

  bool guards_everything_;
  std::deque<std::pair<char *, size_t>> freed_;  // guarded ones, still mapped
};

}  // namespace mps_emulator
