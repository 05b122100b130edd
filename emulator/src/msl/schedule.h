// The order in which the emulator lets threads run where a GPU promises none.
#pragma once

#include <cstdint>
#include <span>

namespace mps_emulator::msl {

// Chosen by the environment variable MPS_EMULATOR_SCHEDULE: `forward` (the
// default), `reverse`, or `random:SEED` with an unsigned SEED.
class Schedule {
 public:
  // Reads the environment.  Calls Fatal() on any other value.
  static Schedule FromEnvironment();

  bool is_forward() const { return kind_ == kForward; }

  // Brings `items`, which are in ascending order, into the order to run them.
  void Arrange(std::span<uint16_t> items);
  void Arrange(std::span<uint32_t> items);

  // Which of `count` candidates in ascending order runs next.
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
