// Reserves the addresses that serve as buffer handles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace mps_emulator {

struct Buffer;

// Handles are addresses in one big mapping without access rights.  So handles
// need no memory, and a read or write at a handle faults.  For each power of
// two, the mapping has a region, which is an array of slots of that size.  So
// arithmetic alone finds the buffer to which an address belongs.  The search
// needs no lock, and works in a signal handler.
//
// A slot is larger than its buffer, so the address one past the buffer's end
// also belongs to the slot.  A freed slot is reused late, so that a message can
// still name the freed buffer of a stale handle.  Slots are reused in the order
// in which they were freed.
class HandleSpace {
 public:
  static constexpr unsigned kMinShift = 8;   // smallest slot: 256 bytes
  static constexpr unsigned kMaxShift = 37;  // largest slot: 128 GiB

  // Reserves the addresses; ends the program if that fails.
  HandleSpace();

  // Returns the Buffer of a slot that has room for `size` bytes; nullptr if no
  // slot is left.  If the slot is reused, the Buffer still describes the former
  // buffer.
  Buffer *Take(size_t size);

  // Gives back the slot of `buffer`, for a later reuse.
  void GiveBack(Buffer *buffer);

  uintptr_t begin() const { return base_; }
  size_t size() const { return size_; }

  // Returns the Buffer of the slot at `address`, an address in this space;
  // nullptr if the slot was never taken.
  Buffer *Find(const void *address) const;

 private:
  // The Buffers are allocated in chunks.  A chunk never moves.
  static constexpr unsigned kChunkShift = 12;
  static constexpr size_t kMaxChunks = 4096;
  // While a region has new slots, a freed slot is reused only if more than this
  // many slots of the region are free.
  static constexpr size_t kQuarantine = 4096;
  static constexpr unsigned kNumRegions = kMaxShift - kMinShift + 1;

  struct Region {
    size_t num_slots = 0;  // how many slots the region has room for
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
