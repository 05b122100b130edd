// MTLFence, MTLEvent and MTLSharedEvent.
#include <Metal/Metal.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "core/fatal.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;

namespace {

struct Listener {
  uint64_t value;
  dispatch_queue_t queue;  // nullptr: run at once
  MTLSharedEventNotificationBlock block;
};

struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t value = 0;
  std::set<CommandQueue *> signalers;
  // UsedBlocks::done() of each queue at its last signal.
  std::map<CommandQueue *, uint64_t> done;
  std::vector<Listener> listeners;
};

// A command waits so long for a value that no committed work signals, because a
// CPU thread may still signal the value.
constexpr std::chrono::seconds kPatience(20);

}  // namespace

@implementation MTLSharedEventListener

@synthesize dispatchQueue = _dispatchQueue;

GETTER(instancetype, init, [self initWithDispatchQueue:nullptr])

- (instancetype)initWithDispatchQueue:(dispatch_queue_t)dispatchQueue {
  _dispatchQueue = dispatchQueue;
  if (_dispatchQueue) dispatch_retain(_dispatchQueue);
  return self;
}

- (void)dealloc {
  if (_dispatchQueue) dispatch_release(_dispatchQueue);
  [super dealloc];
}

@end

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

- (uint64_t)signaledValue {
  std::lock_guard<std::mutex> lock([self state]->mutex);
  return [self state]->value;
}

- (void)setSignaledValue:(uint64_t)value {
  EventState *state = [self state];
  std::vector<Listener> due;
  {
    std::lock_guard<std::mutex> lock(state->mutex);
    state->value = value;
    std::erase_if(state->listeners, [&](const Listener &listener) {
      if (listener.value > value) return false;
      due.push_back(listener);
      return true;
    });
  }
  state->changed.notify_all();
  for (Listener &listener : due) {
    MTLSharedEventNotificationBlock block = listener.block;
    if (!listener.queue) {
      block(self, value);
      [block release];
      continue;
    }
    [self retain];
    dispatch_async(listener.queue, ^{
      block(self, value);
      [block release];
      [self release];
    });
    dispatch_release(listener.queue);
  }
}

- (void)notifyListener:(MTLSharedEventListener *)listener
               atValue:(uint64_t)value
                 block:(MTLSharedEventNotificationBlock)block {
  EventState *state = [self state];
  dispatch_queue_t queue = [listener dispatchQueue];
  uint64_t now;
  {
    std::lock_guard<std::mutex> lock(state->mutex);
    if (queue) dispatch_retain(queue);
    state->listeners.push_back({value, queue, [block copy]});
    now = state->value;
  }
  if (now >= value) [self setSignaledValue:now];
}

- (void)noteSignalFrom:(CommandQueue *)queue {
  std::lock_guard<std::mutex> lock([self state]->mutex);
  [self state]->signalers.insert(queue);
}

- (void)signal:(uint64_t)value from:(CommandQueue *)queue {
  {
    std::lock_guard<std::mutex> lock([self state]->mutex);
    [self state]->done[queue] = queue->used().done();
  }
  [self setSignaledValue:value];
}

- (void)reach:(uint64_t)value on:(CommandQueue *)queue {
  [self reach:value];
  std::lock_guard<std::mutex> lock([self state]->mutex);
  for (const auto &[other, done] : [self state]->done)
    queue->used().OrderAfter(&other->used(), done);
}

- (void)reach:(uint64_t)value {
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
    Fatal("encodeWaitForEvent:value: waits for the value %lu, the event stands "
          "at %lu, and no committed work will signal the value: on a Mac the "
          "device hangs",
          value, state->value);
}

@end
