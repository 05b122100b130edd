// MTLEvent and MTLFence.
#include <Metal/Metal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <utility>

#include "core/fatal.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;

namespace {

struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t value = 0;
  std::set<CommandQueue *> signalers;
  // The latest signals.  Each signal has its value and the uses of buffers that
  // had ended before the signal.
  std::deque<std::pair<uint64_t, UsedBlocks::VectorClock>> signals;
};

// How many signals are kept.  If a command waits for the value of an older
// signal, the command is ordered after the oldest kept signal.
constexpr size_t kKeptSignals = 64;

// How long a command waits for a value that no committed work signals.  Another
// thread may still commit such work.
constexpr std::chrono::seconds kPatience(20);

}  // namespace

@implementation MPSEmulatorEvent

GETTER(EventState *, state, static_cast<EventState *>(_state))

- (instancetype)init {
  _state = new EventState;
  return self;
}

- (void)dealloc {
  delete[self state];
  [super dealloc];
}

- (void)noteSignalFrom:(CommandQueue *)queue {
  std::lock_guard<std::mutex> lock([self state]->mutex);
  [self state]->signalers.insert(queue);
}

- (void)signal:(uint64_t)value from:(CommandQueue *)queue {
  {
    std::lock_guard<std::mutex> lock([self state]->mutex);
    auto &signals = [self state]->signals;
    UsedBlocks::VectorClock ended = queue->used().Done();
    if (!signals.empty())
      for (const auto &[other, done] : signals.back().second)
        ended[other] = std::max(ended[other], done);
    signals.emplace_back(value, std::move(ended));
    if (signals.size() > kKeptSignals) signals.pop_front();
    [self state]->value = value;
  }
  [self state]->changed.notify_all();
}

- (void)reach:(uint64_t)value on:(CommandQueue *)queue {
  [self waitFor:value];
  std::lock_guard<std::mutex> lock([self state]->mutex);
  // The first signal of this value, or of a greater value, ends the wait.  So
  // the queue's later commands are ordered only after the commands that ran
  // before that signal.
  for (const auto &[signaled, ended_by_then] : [self state]->signals) {
    if (signaled < value) continue;
    queue->used().OrderAfter(ended_by_then);
    return;
  }
}

- (void)waitFor:(uint64_t)value {
  EventState *state = [self state];
  std::set<CommandQueue *> signalers;
  {
    std::lock_guard<std::mutex> lock(state->mutex);
    if (state->value >= value) return;
    signalers = state->signalers;
  }
  for (CommandQueue *queue : signalers) queue->Run();
  std::unique_lock<std::mutex> lock(state->mutex);
  if (!state->changed.wait_for(lock, kPatience,
                               [&] { return state->value >= value; }))
    Fatal("encodeWaitForEvent:value: waits for the value %lu, the event has "
          "the value %lu, and no committed work will signal the value: on a "
          "Mac the device hangs",
          value, state->value);
}

@end

@implementation MPSEmulatorFence

- (instancetype)init {
  _encoders = new std::set<uint64_t>;
  return self;
}

- (void)dealloc {
  delete _encoders;
  [super dealloc];
}

@end
