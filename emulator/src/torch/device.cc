// The mps device for torch's C++ core: hooks, device guard and events.
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>

#include "core/fatal.h"
#include "core/limits.h"
#include "core/release.h"
#include "core/stream.h"
#include "metal/dispatch_queue.h"
#include "torch/allocator.h"
#include "torch/generator.h"

namespace mps_emulator {

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

double NowInMilliseconds() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A torch.mps.Event or a torch.Event: a mark in a stream.
struct Event {
  bool recorded = false;
  int stream = 0;
  UsedBlocks::VectorClock
      ended;            // the uses of buffers that ended before the mark
  bool reached = true;  // whether the device has passed the mark
  double time = 0;      // the time at the mark, in milliseconds
};

class Events {
 public:
  static Events &Get() {
    static Events *events = new Events;
    return *events;
  }

  uint32_t Acquire() {
    std::lock_guard<std::mutex> lock(mutex_);
    events_[++last_id_] = std::make_shared<Event>();
    return last_id_;
  }

  void Release(uint32_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.erase(id);
  }

  std::shared_ptr<Event> Find(uint32_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = events_.find(id);
    TORCH_CHECK(found != events_.end(), "Invalid Event ID: ", id);
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uint32_t, std::shared_ptr<Event>> events_;
  uint32_t last_id_ = 0;
};

// Encodes the mark as a command and commits the stream, as on a Mac.
void Record(const std::shared_ptr<Event> &event) {
  event->recorded = true;
  event->reached = false;
  event->stream = CurrentStream();
  EncodeOnStream({"an event", {}, [event](char *const *) {
                    event->time = NowInMilliseconds();
                    event->reached = true;
                    OnStream on(event->stream);
                    event->ended = StreamCommandQueue().used().Done();
                  }});
  CommitInQueue();
}

// Waits until the device has passed the mark.  Returns whether the device had
// passed the mark before this call, for a program that polls the event.
bool Reach(const Event &event) {
  bool reached = event.reached;
  OnStream on(event.stream);
  if (!reached) SynchronizeInQueue();
  return reached;
}

// Makes later work of the current stream run after the mark.
void WaitFor(const std::shared_ptr<Event> &event) {
  const int stream = CurrentStream();
  if (stream == event->stream || !event->recorded) return;
  EncodeOnStream({"a wait for an event", {}, [event, stream](char *const *) {
                    OnStream on_recorded(event->stream);
                    CommandQueue &recorded = StreamCommandQueue();
                    if (!event->reached) recorded.Run();
                    OnStream on(stream);
                    StreamCommandQueue().used().OrderAfter(event->ended);
                  }});
}

// Returns the time between two marks, in milliseconds.
double TimeBetween(const Event &first, const Event &second) {
  Reach(first);
  Reach(second);
  return second.time - first.time;
}

// Ends the program if the caller is not in the current stream's queue.  On a
// Mac, torch's own functions call dispatch_assert_queue() for this check.
void RequireQueue(const char *function) {
  if (QueueIsAsserted() && !StreamDispatchQueue().RunsOnThisThread())
    Fatal(
        "%s outside of the dispatch queue of the current stream: from torch "
        "2.15 on, a Mac ends the program.  Call the function inside "
        "dispatch_sync(torch::mps::get_dispatch_queue(), ...)",
        function);
}

// Returns the stream that the functions of torch/mps.h use.
int StreamOfFunctions() { return kFunctionsKnowQueues ? CurrentStream() : 0; }

class Hooks final : public at::MPSHooksInterface {
 public:
  void init() const override {}
  bool hasMPS() const override { return !IsLeftOut(); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return !IsLeftOut(); }
  bool hasPrimaryContext(DeviceIndex) const override { return !IsLeftOut(); }

  // The emulated system is macOS 15.2.
  bool isOnMacOSorNewer(unsigned major, unsigned minor) const override {
    return major < 15 || (major == 15 && minor <= 2);
  }

  const at::Generator &getDefaultGenerator(DeviceIndex) const override {
    return DefaultGenerator();
  }
  at::Generator getNewGenerator(DeviceIndex) const override {
    return NewGenerator();
  }

  at::Allocator *getMPSDeviceAllocator() const override {
    return &TorchAllocator();
  }
  at::Allocator *getPinnedMemoryAllocator() const override {
    return c10::GetCPUAllocator();
  }
  Device getDeviceFromPtr(void *) const override { return MpsDevice(); }

  void deviceSynchronize() const override {
    if (kFunctionsKnowQueues) return SynchronizeAllStreams();
    OnStream on(StreamOfFunctions());
    SynchronizeStream();
  }
  void commitStream() const override {
    RequireQueue("torch::mps::commit()");
    OnStream on(StreamOfFunctions());
    CommitStream();
  }
  void *getCommandBuffer() const override {
    RequireQueue("torch::mps::get_command_buffer()");
    OnStream on(StreamOfFunctions());
    return StreamCommandBuffer();
  }
  void *getDispatchQueue() const override {
    OnStream on(StreamOfFunctions());
    return ToHandle(&StreamDispatchQueueObject());
  }

  void emptyCache() const override { ReleaseCachedBlocks(); }
  size_t getCurrentAllocatedMemory() const override {
    return GetMemoryStatistics().in_use;
  }
  size_t getDriverAllocatedMemory() const override {
    return GetMemoryStatistics().reserved;
  }
  size_t getRecommendedMaxMemory() const override {
    return RecommendedMaxMemory();
  }
  size_t getMaxBufferLength() const override { return kMaxBufferLength; }
  void setMemoryFraction(double fraction) const override {
    TorchAllocator().setHighWatermarkRatio(fraction);
  }

  // On a Mac, Instruments shows this trace.  The emulator only checks the
  // modes.
  void profilerStartTrace(const std::string &modes, bool) const override {
    std::istringstream list(modes);
    for (std::string mode; std::getline(list, mode, ',');)
      TORCH_CHECK(mode.empty() || mode == "interval" || mode == "event",
                  "Invalid Signpost trace mode: ", mode);
  }
  void profilerStopTrace() const override {}

  uint32_t acquireEvent(bool) const override { return Events::Get().Acquire(); }
  void releaseEvent(uint32_t id) const override { Events::Get().Release(id); }
  void recordEvent(uint32_t id) const override {
    Record(Events::Get().Find(id));
  }
  void waitForEvent(uint32_t id) const override {
    WaitFor(Events::Get().Find(id));
  }
  void synchronizeEvent(uint32_t id) const override {
    Reach(*Events::Get().Find(id));
  }
  bool queryEvent(uint32_t id) const override {
    return Reach(*Events::Get().Find(id));
  }
  double elapsedTimeOfEvents(uint32_t start, uint32_t end) const override {
    std::shared_ptr<Event> first = Events::Get().Find(start);
    std::shared_ptr<Event> second = Events::Get().Find(end);
    TORCH_CHECK(first->recorded && second->recorded,
                "Events must be recorded before calculating elapsed time.");
    return TimeBetween(*first, *second);
  }

  DeviceIndex deviceCount() const override { return IsLeftOut() ? 0 : 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr DeviceType static_type = DeviceType::MPS;

  Guard() = default;
  explicit Guard(DeviceType) {}

  DeviceType type() const override { return static_type; }
  Device exchangeDevice(Device) const override { return MpsDevice(); }
  Device getDevice() const override { return MpsDevice(); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override {
    return IsLeftOut() ? 0 : 1;
  }

  // Before torch 2.15, torch's guard returns only the default stream.
  Stream getStream(Device) const override {
    return StreamOf(StreamOfFunctions());
  }
  Stream getDefaultStream(Device) const override { return StreamOf(0); }
  Stream getNewStream(Device, int) const override {
    return StreamOf(kFunctionsKnowQueues ? StreamFromPool() : 0);
  }
  Stream exchangeStream(Stream stream) const override {
    Stream before = StreamOf(StreamOfFunctions());
    if (kFunctionsKnowQueues) SetCurrentStream(static_cast<int>(stream.id()));
    return before;
  }
  bool queryStream(const Stream &stream) const override {
    OnStream on(static_cast<int>(stream.id()));
    bool idle = !StreamCommandQueue().has_work();
    if (!idle) SynchronizeInQueue();
    return idle;
  }
  void synchronizeStream(const Stream &stream) const override {
    OnStream on(static_cast<int>(stream.id()));
    SynchronizeInQueue();
  }
  void synchronizeDevice(DeviceIndex) const override {
    SynchronizeAllStreams();
  }

  // ---- for torch.Event
  void record(void **event, const Stream &stream, DeviceIndex,
              c10::EventFlag) const override {
    OnStream on(static_cast<int>(stream.id()));
    if (!*event) *event = new std::shared_ptr<Event>(new Event);
    Record(EventOf(*event));
  }
  void block(void *event, const Stream &stream) const override {
    OnStream on(static_cast<int>(stream.id()));
    if (event) WaitFor(EventOf(event));
  }
  bool queryEvent(void *event) const override {
    return !event || Reach(*EventOf(event));
  }
  void synchronizeEvent(void *event) const override {
    if (event) Reach(*EventOf(event));
  }
  double elapsedTime(void *start, void *end, DeviceIndex) const override {
    TORCH_CHECK(start && end,
                "Both events must be recorded before calculating elapsed "
                "time.");
    return TimeBetween(*EventOf(start), *EventOf(end));
  }
  void destroyEvent(void *event, DeviceIndex) const noexcept override {
    delete static_cast<std::shared_ptr<Event> *>(event);
  }

 private:
  static Stream StreamOf(int id) {
    return Stream(Stream::UNSAFE, MpsDevice(), id);
  }
  static std::shared_ptr<Event> &EventOf(void *event) {
    return *static_cast<std::shared_ptr<Event> *>(event);
  }
};

C10_REGISTER_GUARD_IMPL(MPS, Guard)

// Autograd refuses a process that has both CUDA and mps.  A torch that is built
// for CUDA reports CUDA even without a GPU.  So the emulator turns CUDA off.
// By now torch has made a CUDA hooks object, which has no members, and keeps
// the object.  The code below replaces the object's table of virtual functions
// with the table of the base class, which a torch without CUDA uses.
const bool without_cuda = [] {
  static const auto *base = new at::CUDAHooksInterface;
  auto &hooks =
      const_cast<at::CUDAHooksInterface &>(at::detail::getCUDAHooks());
  std::memcpy(static_cast<void *>(&hooks), static_cast<const void *>(base),
              sizeof(void *));
  return true;
}();

}  // namespace

}  // namespace mps_emulator

namespace at {

// torch looks for its mps hooks under the name MPSHooks.
using MPSHooks = mps_emulator::Hooks;
REGISTER_MPS_HOOKS(MPSHooks)

}  // namespace at
