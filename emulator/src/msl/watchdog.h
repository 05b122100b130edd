// Ends the program if a kernel never ends.
//
// A GPU's watchdog ends work after some seconds.  Here the limit of a
// threadgroup is MPS_EMULATOR_WATCHDOG seconds of processor time (0: none). The
// default is kDefaultSeconds, and ten times as much if races are checked: far
// more than any threadgroup took that ended.
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

  // The executor's thread calls this function at the begin of a dispatch.  The
  // call costs nothing while the timer of an earlier call runs.
  void Watch();

 private:
  static void OnTick(int, siginfo_t *info, void *);
  void Tick();
  void Set(unsigned seconds);

  const Executor *executor_;
  unsigned limit_ = 0;  // seconds
  timer_t timer_{};
  unsigned process_ = 0;  // the process of the timer; 0: no timer
  volatile sig_atomic_t is_running_ = 0;
  uint64_t progress_ = 0;  // of the executor at the last tick
  unsigned ticks_ = 0;     // without progress
};

}  // namespace mps_emulator::msl
