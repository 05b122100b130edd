// Sets of bytes, and the bytes that a command reads and writes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace mps_emulator {

// Bytes [begin, end).
struct ByteRange {
  uintptr_t begin;
  uintptr_t end;
};

// A set of bytes: ranges in ascending order.  No range is empty, and no two
// ranges overlap or touch.
using ByteRanges = std::vector<ByteRange>;

// Returns the bytes of `ranges` in [begin, end), as offsets from `begin`.
ByteRanges Clip(const ByteRanges &ranges, uintptr_t begin, uintptr_t end);

// Returns the lowest byte that is in both sets; nullopt if there is none.
std::optional<uintptr_t> FirstCommon(const ByteRanges &a, const ByteRanges &b);

// Returns whether `outer` has every byte of `inner`.
bool Covers(const ByteRanges &outer, const ByteRanges &inner);

// The bytes that a command reads, and the bytes that it writes.
struct Accesses {
  ByteRanges reads;
  ByteRanges writes;
};

// A byte that two commands access.  At least one of the two writes the byte.
struct Conflict {
  uintptr_t byte;
  bool first_writes;
  bool second_writes;
};
std::optional<Conflict> FindConflict(const Accesses &first,
                                     const Accesses &second);

// Returns whether every command that conflicts with `inner` also conflicts with
// `outer`.
bool Covers(const Accesses &outer, const Accesses &inner);

}  // namespace mps_emulator
