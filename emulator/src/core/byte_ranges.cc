#include "core/byte_ranges.h"

#include <algorithm>

namespace mps_emulator {

ByteRanges Clip(const ByteRanges &ranges, uintptr_t begin, uintptr_t end) {
  ByteRanges clipped;
  for (const ByteRange &range : ranges) {
    const uintptr_t first = std::max(range.begin, begin);
    const uintptr_t last = std::min(range.end, end);
    if (first < last) clipped.push_back({first - begin, last - begin});
  }
  return clipped;
}

std::optional<uintptr_t> FirstCommon(const ByteRanges &a, const ByteRanges &b) {
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() && j != b.end()) {
    const uintptr_t begin = std::max(i->begin, j->begin);
    if (begin < std::min(i->end, j->end)) return begin;
    if (i->end < j->end)
      ++i;
    else
      ++j;
  }
  return std::nullopt;
}

bool Covers(const ByteRanges &outer, const ByteRanges &inner) {
  auto candidate = outer.begin();
  for (const ByteRange &range : inner) {
    while (candidate != outer.end() && candidate->end < range.end) ++candidate;
    if (candidate == outer.end() || range.begin < candidate->begin)
      return false;
  }
  return true;
}

std::optional<Conflict> FindConflict(const Accesses &first,
                                     const Accesses &second) {
  if (auto byte = FirstCommon(first.writes, second.writes))
    return Conflict{*byte, true, true};
  if (auto byte = FirstCommon(first.writes, second.reads))
    return Conflict{*byte, true, false};
  if (auto byte = FirstCommon(first.reads, second.writes))
    return Conflict{*byte, false, true};
  return std::nullopt;
}

bool Covers(const Accesses &outer, const Accesses &inner) {
  if (!Covers(outer.writes, inner.writes)) return false;
  // Whatever conflicts with a read also conflicts with a write of the same
  // bytes.
  for (const ByteRange &range : inner.reads)
    if (!Covers(outer.writes, {range}) && !Covers(outer.reads, {range}))
      return false;
  return true;
}

}  // namespace mps_emulator
