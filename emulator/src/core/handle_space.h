// The reservation of addresses that serve as buffer handles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace mps_emulator {

struct Buffer;

// Handles are addresses in one big mapping without access rights: they cost no
// memory, and reading or writing through one faults.  The mapping is divided
// into one region per power of two; a region is an array of slots of that
// size.  So the buffer of any address, also of an interior one, is found by
// arithmetic alone, without a lock and inside a signal handler.
//
// A slot is larger than its buffer, so that the address one past the end still
// belongs to it.  Freed slots are reused late, in the order in which they were
// freed: a stale handle is recognised as such for a while.
class HandleSpace {
 public:
  static constexpr unsigned kMinShift = 8;   // smallest slot: 256 bytes
  static constexpr unsigned kMaxShift = 37;  // largest slot: 128 GiB

  // Reserves the addresses.  Ends the program if that is impossible.
  HandleSpace();

  // A buffer record with a handle that has room for `size` bytes.  The record
  // keeps the fields of its former use.  nullptr: no slot is left.
  Buffer *Take(size_t size);

  // `buffer` was freed: its slot may be reused some time later.
  void GiveBack(Buffer *buffer);

  uintptr_t begin() const { return base_; }
  size_t size() const { return size_; }

  // The record of the slot that holds `address`, an address in this space;
  // nullptr if that slot was never taken.
  Buffer *Find(const void *address) const;

 private:
  // Records are made in chunks; a chunk, once made, stays where it is.
  static constexpr unsigned kChunkShift = 12;
  static constexpr size_t kMaxChunks = 4096;
  static constexpr size_t kQuarantine = 4096;  // freed slots kept unused
  static constexpr unsigned kNumRegions = kMaxShift - kMinShift + 1;

  struct Region {
    size_t num_slots = 0;  // that the region has room for
    size_t num_taken = 0;  // slots ever taken: 0 .. num_taken - 1
    std::deque<Buffer *> freed;
    Buffer *chunks[kMaxChunks] = {};
  };

  uintptr_t base_ = 0;
  size_t size_ = 0;
  unsigned region_shift_ = 0;
  Region regions_[kNumRegions];
};

}  // namespace mps_emulator
