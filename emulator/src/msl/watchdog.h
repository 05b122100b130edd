// Ends the program if a kernel never ends.
//
// A GPU's watchdog ends work after some seconds.  Here a threadgroup may take
// MPS_EMULATOR_WATCHDOG seconds of processor time; 0 means no limit.  The
// default is kDefaultSeconds, or ten times as much if races are checked.  So
// far, no threadgroup that ends has come near this limit.
#pragma once

#include <csignal>
#include <cstdint>
#include <ctime>

namespace mps_emulator::msl {

class Executor;

class Watchdog {
 public:
  static constexpr unsigned kDefaultSeconds = 120;

  explicit Watchdog(const Executor *executor) : executor_(executor) {}
  ~Watchdog();
  Watchdog(const Watchdog &) = delete;

  // The executor's thread calls this function at the beginning of a dispatch.
  // The call costs nothing while the timer of an earlier call runs.
  void Watch();

 private:
  static void OnTick(int, siginfo_t *info, void *);
  void Tick();
  void Set(unsigned seconds);

  const Executor *executor_;
  unsigned limit_ = 0;  // seconds
  timer_t timer_{};
  // The value of `process` when timer_ was made; 0: there is no timer.
  unsigned process_ = 0;
  volatile sig_atomic_t is_running_ = 0;
  uint64_t progress_ = 0;  // executor_->progress() at the last tick
  unsigned ticks_ = 0;     // how many ticks in a row saw no progress
};

}  // namespace mps_emulator::msl
