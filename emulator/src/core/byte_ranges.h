// Sets of bytes, and what a command does with them.
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

// A set of bytes: ranges in ascending order, none of them empty, which neither
// overlap nor touch.
using ByteRanges = std::vector<ByteRange>;

// The bytes of `ranges` from `begin` up to `end`, counted from `begin`.
ByteRanges Clip(const ByteRanges &ranges, uintptr_t begin, uintptr_t end);

// The first byte that is in both sets.
std::optional<uintptr_t> FirstCommon(const ByteRanges &a, const ByteRanges &b);

// Whether `outer` has every byte of `inner`.
bool Covers(const ByteRanges &outer, const ByteRanges &inner);

// The bytes that a command reads, and those that it writes.
struct Accesses {
  ByteRanges reads;
  ByteRanges writes;
};

// A byte that two commands access, at least one of which writes it.
struct Conflict {
  uintptr_t byte;
  bool first_writes;
  bool second_writes;
};
std::optional<Conflict> FindConflict(const Accesses &first,
                                     const Accesses &second);

// Whether a command that conflicts with `inner` conflicts with `outer` as well.
bool Covers(const Accesses &outer, const Accesses &inner);

}  // namespace mps_emulator
