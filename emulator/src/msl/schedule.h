// The order in which the emulator runs threads; a GPU promises no order.
#pragma once

#include <cstdint>
#include <span>

namespace mps_emulator::msl {

// The environment variable MPS_EMULATOR_SCHEDULE chooses `forward` (the
// default), `reverse`, or `random:SEED` with an unsigned SEED.
class Schedule {
 public:
  // Reads the environment.  Calls Fatal() on any other value.
  static Schedule FromEnvironment();

  bool is_forward() const { return kind_ == kForward; }

  // Sorts `items`, which are ascending, into the order of their run.
  void Arrange(std::span<uint16_t> items);
  void Arrange(std::span<uint32_t> items);

  // Returns the index of the next of `count` candidates in ascending order.
  unsigned Pick(unsigned count);

 private:
  enum Kind { kForward, kReverse, kRandom };

  template <typename T>
  void ArrangeItems(std::span<T> items);
  uint64_t Random();

  Kind kind_ = kForward;
  uint64_t state_ = 0;
};

}  // namespace mps_emulator::msl
