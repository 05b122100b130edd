// The reservation of addresses that serve as buffer handles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace mps_emulator {

struct Buffer;

// Handles are addresses in one big mapping without access rights: they cost no
// memory, and a read or write through a handle faults.  The mapping has a
// region for each power of two; a region is an array of slots of that size.  So
// arithmetic alone gives the buffer of an address, at its begin or inside,
// without a lock and in a signal handler.
//
// A slot is larger than its buffer, so that the address one past the buffer's
// end belongs to the slot.  Freed slots are reused late, in the order of their
// release, so that messages can name the freed buffer of a stale handle.
class HandleSpace {
 public:
  static constexpr unsigned kMinShift = 8;   // smallest slot: 256 bytes
  static constexpr unsigned kMaxShift = 37;  // largest slot: 128 GiB

  // Reserves the addresses; ends the program if that fails.
  HandleSpace();

  // Returns a buffer record whose handle has room for `size` bytes; nullptr if
  // no slot is left.  The record keeps the fields of its former use.
  Buffer *Take(size_t size);

  // Gives back the slot of `buffer`, for a later reuse.
  void GiveBack(Buffer *buffer);

  uintptr_t begin() const { return base_; }
  size_t size() const { return size_; }

  // Returns the record of the slot at `address`, an address in this space;
  // nullptr if the slot was never taken.
  Buffer *Find(const void *address) const;

 private:
  // Records are in chunks, which never move.
  static constexpr unsigned kChunkShift = 12;
  static constexpr size_t kMaxChunks = 4096;
  static constexpr size_t kQuarantine = 4096;  // freed slots kept unused
  static constexpr unsigned kNumRegions = kMaxShift - kMinShift + 1;

  struct Region {
    size_t num_slots = 0;  // the room of the region
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
