#include "msl/watchdog.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "core/environment.h"
#include "core/fatal.h"
#include "msl/executor.h"

// glibc's sigevent has the member _sigev_un._tid, but lacks the name
// sigev_notify_thread_id for the member.
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace mps_emulator::msl {

namespace {

// This number tells a process from its children, because the child of a fork()
// increments the number.  A child does not inherit timers, so a watchdog makes
// a new timer if its process_ differs from this number.
std::atomic<unsigned> process{1};

int Signal() { return SIGRTMIN + 9; }

unsigned Limit() {
  const unsigned by_default =
      Watchdog::kDefaultSeconds * (ReportsAccesses() ? 10 : 1);
  return EnvironmentNumber("MPS_EMULATOR_WATCHDOG").value_or(by_default);
}

}  // namespace

Watchdog::~Watchdog() {
  if (process_ == process) timer_delete(timer_);
}

void Watchdog::Watch() {
  if (process_ == process && is_running_) return;
  if (process_ != process) {
    static const int once = pthread_atfork(nullptr, nullptr, [] { ++process; });
    static_cast<void>(once);
    struct sigaction action = {};
    action.sa_sigaction = &OnTick;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(Signal(), &action, nullptr);
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = Signal();
    event.sigev_value.sival_ptr = this;
    event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
    // If there is no timer, the program goes on without a watchdog.
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) != 0) return;
    process_ = process;
    limit_ = Limit();
  }
  if (limit_ == 0) return;
  ticks_ = 0;
  progress_ = executor_->progress();
  is_running_ = 1;
  Set(1);
}

void Watchdog::Set(unsigned seconds) {
  itimerspec period = {};
  period.it_value.tv_sec = period.it_interval.tv_sec = seconds;
  timer_settime(timer_, 0, &period, nullptr);
}

void Watchdog::OnTick(int, siginfo_t *info, void *) {
  if (info->si_code == SI_TIMER)
    static_cast<Watchdog *>(info->si_value.sival_ptr)->Tick();
}

void Watchdog::Tick() {
  const Dispatch *dispatch = executor_->dispatch();
  if (dispatch == nullptr) {
    Set(0);
    is_running_ = 0;
    return;
  }
  if (progress_ != executor_->progress()) {
    progress_ = executor_->progress();
    ticks_ = 0;
    return;
  }
  if (++ticks_ < limit_) return;
  // No exception may leave the kernel's code, so Fatal() cannot be called here.
  const unsigned(&position)[3] = executor_->threadgroup_position();
  PrintFatalInHandler(
      "kernel '%s', threadgroup (%u, %u, %u): the threadgroup has run for %u s "
      "without coming to its end: a loop never ends, or waits for another "
      "thread or threadgroup.  Metal does not promise that two threads or "
      "threadgroups run at the same time, so a Mac may hang until the GPU's "
      "watchdog ends the kernel.  MPS_EMULATOR_WATCHDOG=seconds sets the limit "
      "(0: none)",
      dispatch->kernel->name, position[0], position[1], position[2], limit_);
  abort();
}

}  // namespace mps_emulator::msl
