#include "msl/schedule.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

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
  if (text.starts_with(kRandomPrefix)) {
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
      "random:SEED with an unsigned number SEED",
      value);
}

// splitmix64 is small, and works with every seed, 0 included.
uint64_t Schedule::Random() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

unsigned Schedule::Pick(unsigned count) {
  if (kind_ == kForward) return 0;
  if (kind_ == kReverse) return count - 1;
  return static_cast<unsigned>(Random() % count);
}

}  // namespace mps_emulator::msl
