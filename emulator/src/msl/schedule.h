// The order in which the emulator runs threads; a GPU promises no order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace mps_emulator::msl {

// The environment variable MPS_EMULATOR_SCHEDULE chooses `forward` (the
// default), `reverse`, or `random:SEED` with an unsigned SEED.
class Schedule {
 public:
  // Reads MPS_EMULATOR_SCHEDULE.  Calls Fatal() if the value is none of the
  // three.
  static Schedule FromEnvironment();

  bool is_forward() const { return kind_ == kForward; }

  // Puts `items`, which are in ascending order, into the order in which they
  // run.
  template <typename T>
  void Arrange(std::span<T> items) {
    if (kind_ == kReverse) {
      std::reverse(items.begin(), items.end());
    } else if (kind_ == kRandom) {
      for (size_t left = items.size(); left > 1; --left)
        std::swap(items[left - 1], items[Random() % left]);
    }
  }

  // Returns the index of the candidate that is next.  The `count` candidates
  // are in ascending order.
  unsigned Pick(unsigned count);

 private:
  enum Kind { kForward, kReverse, kRandom };

  uint64_t Random();

  Kind kind_ = kForward;
  uint64_t state_ = 0;
};

}  // namespace mps_emulator::msl
