// Ends the program where a kernel spins for ever.
//
// A GPU's watchdog ends work after some seconds.  Here a threadgroup may take
// MPS_EMULATOR_WATCHDOG seconds of processor time (0: any), by default
// kDefaultSeconds, ten times that where races are checked: far more than one
// that comes to an end has been seen to need.
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

  // A dispatch begins on the executor's thread, which calls this.  Costs
  // nothing while the timer of an earlier call still runs.
  void Watch();

 private:
  static void OnTick(int, siginfo_t *info, void *);
  void Tick();
  void Set(unsigned seconds);

  const Executor *executor_;
  unsigned limit_ = 0;  // seconds
  timer_t timer_{};
  unsigned process_ = 0;  // that the timer belongs to, 0: there is none
  volatile sig_atomic_t is_running_ = 0;
  uint64_t progress_ = 0;  // of the executor at the last tick
  unsigned ticks_ = 0;     // without progress
};

}  // namespace mps_emulator::msl
