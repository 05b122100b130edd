// Allocates and frees the memory of the copies of a block.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "core/limits.h"

namespace mps_emulator {

// Capacities are rounded up to a size class.  There are four size classes from
// one power of two to the next.  So a freed copy fits the next request of about
// the same size.
struct SizeClass {
  unsigned index;
  size_t capacity;  // bytes
};

// Returns the smallest class that holds `size` bytes.  `size` is at most 2^40.
SizeClass SizeClassOf(size_t size);

inline constexpr unsigned kNumSizeClasses = 160;

// A small device copy has this many more bytes after its capacity.  A kernel
// that writes past the end of its buffer writes to these bytes first.
inline constexpr size_t kTail = 1024;

// A small copy comes from malloc, so the emulator does not notice a read far
// past the copy's end.  A large copy is its own mapping, followed by a page in
// which every access faults.  With MPS_EMULATOR_GUARD=1, every copy is followed
// by 64 MiB of addresses at which accesses fault.  Because Linux limits the
// number of mappings, a program can then have about 10,000 live buffers.
class CopyMemory {
 public:
  CopyMemory();

  // True with MPS_EMULATOR_GUARD=1.
  bool guards_everything() const { return guards_everything_; }

  // Returns `capacity` uninitialised bytes, aligned to 64 (16 for guarded
  // copies); nullptr if no memory is left.
  char *Allocate(size_t capacity);

  // Returns how many bytes a device copy has: the capacity, plus kTail if the
  // copy is small.
  size_t DeviceBytes(size_t capacity) const {
    return IsLarge(capacity) ? capacity : capacity + kTail;
  }
  char *AllocateForDevice(size_t capacity);

  // Like AllocateForDevice(), but on pages that no other copy uses.
  char *AllocatePages(size_t capacity);

  // Frees a copy.  The address of a guarded copy is not reused until kMostFreed
  // more guarded copies have been freed.
  void Free(char *memory, size_t capacity);

  // If `address` is in a freed guarded copy, or in the zone after a guarded
  // copy, prints a message about the program's mistake.  Takes no lock, so a
  // signal handler may call the function.
  static void PrintFault(const void *address);

 private:
  static constexpr size_t kLargeBytes = size_t{256} << 10;

  bool IsLarge(size_t capacity) const {
    return guards_everything_ || capacity >= kLargeBytes;
  }

  // Returns the size, in bytes, of the inaccessible zone after a large copy.
  size_t GuardBytes() const;

  static constexpr size_t kMostFreed = 4096;

  bool guards_everything_;
  // The freed guarded copies whose addresses are still mapped.
  std::deque<std::pair<char *, size_t>> freed_;
};

}  // namespace mps_emulator
