#include "msl/schedule.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/fatal.h"

namespace mps_emulator::msl {

Schedule Schedule::FromEnvironment() {
  Schedule schedule;
  const char *value = getenv("MPS_EMULATOR_SCHEDULE");
  std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "forward") return schedule;
  if (text == "reverse") {
    schedule.kind_ = kReverse;
    return schedule;
  }
  constexpr std::string_view kRandomPrefix = "random:";
  if (text.substr(0, kRandomPrefix.size()) == kRandomPrefix) {
    text.remove_prefix(kRandomPrefix.size());
    uint64_t seed = 0;
    auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error == std::errc() && end == text.data() + text.size()) {
      schedule.kind_ = kRandom;
      schedule.state_ = seed;
      return schedule;
    }
  }
  Fatal(
      "MPS_EMULATOR_SCHEDULE is '%s': set it to forward, reverse or "
      "random:SEED "
      "with an unsigned number SEED",
      value);
}

// splitmix64 is small, and every seed, also 0, is good.
uint64_t Schedule::Random() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

template <typename T>
void Schedule::ArrangeItems(std::span<T> items) {
  if (kind_ == kReverse) {
    std::reverse(items.begin(), items.end());
  } else if (kind_ == kRandom) {
    for (size_t left = items.size(); left > 1; --left)
      std::swap(items[left - 1], items[Random() % left]);
  }
}

void Schedule::Arrange(std::span<uint16_t> items) { ArrangeItems(items); }
void Schedule::Arrange(std::span<uint32_t> items) { ArrangeItems(items); }

unsigned Schedule::Pick(unsigned count) {
  if (kind_ == kForward) return 0;
  if (kind_ == kReverse) return count - 1;
  return static_cast<unsigned>(Random() % count);
}

}  // namespace mps_emulator::msl
