// The mps device for torch's C++ core: hooks, device guard and events.
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>

#include "core/limits.h"
#include "core/stream.h"
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

// torch.mps.Event: a mark in the stream.
struct Event {
  bool recorded = false;
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

// As on a Mac the mark is a command, and record() commits the stream.
void Record(const std::shared_ptr<Event> &event) {
  event->recorded = true;
  event->reached = false;
  EncodeOnStream({"an event", {}, [event](char *const *) {
                    event->time = NowInMilliseconds();
                    event->reached = true;
                  }});
  CommitInQueue();
}

// Waits until the device has passed the mark.  Returns whether the device had
// passed the mark before, the answer for a program that polls.
bool Reach(const Event &event) {
  bool reached = event.reached;
  if (!reached) SynchronizeInQueue();
  return reached;
}

// The time between two marks, in milliseconds.
double TimeBetween(const Event &first, const Event &second) {
  Reach(first);
  Reach(second);
  return second.time - first.time;
}

class Hooks final : public at::MPSHooksInterface {
 public:
  void init() const override {}
  bool hasMPS() const override { return !IsLeftOut(); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return !IsLeftOut(); }
  bool hasPrimaryContext(DeviceIndex) const override { return !IsLeftOut(); }

  // The release that NSProcessInfo reports, 15.2.
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

  void deviceSynchronize() const override { SynchronizeStream(); }
  void commitStream() const override { CommitStream(); }
  void *getCommandBuffer() const override { return StreamCommandBuffer(); }
  void *getDispatchQueue() const override {
    return StreamDispatchQueueHandle();
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
    SetMemoryFraction(fraction);
  }

  // Instruments would show the trace; the emulator drops it.
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
  // The stream runs in order, so later work waits in any case.
  void waitForEvent(uint32_t id) const override { Events::Get().Find(id); }
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

  Stream getStream(Device) const override {
    return Stream(Stream::DEFAULT, MpsDevice());
  }
  Stream getDefaultStream(Device device) const override {
    return getStream(device);
  }
  Stream getNewStream(Device device, int) const override {
    return getStream(device);
  }
  Stream exchangeStream(Stream) const override {
    return getStream(MpsDevice());
  }
  bool queryStream(const Stream &) const override {
    bool idle = !StreamCommandQueue().has_work();
    if (!idle) SynchronizeInQueue();
    return idle;
  }
  void synchronizeStream(const Stream &) const override {
    SynchronizeInQueue();
  }
  void synchronizeDevice(DeviceIndex) const override { SynchronizeInQueue(); }

  // torch.Event
  void record(void **event, const Stream &, DeviceIndex,
              c10::EventFlag) const override {
    if (!*event) *event = new std::shared_ptr<Event>(new Event);
    Record(EventOf(*event));
  }
  void block(void *, const Stream &) const override {}
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
  static std::shared_ptr<Event> &EventOf(void *event) {
    return *static_cast<std::shared_ptr<Event> *>(event);
  }
};

C10_REGISTER_GUARD_IMPL(MPS, Guard)

}  // namespace

}  // namespace mps_emulator

namespace at {

// torch asks for this name.
using MPSHooks = mps_emulator::Hooks;
REGISTER_MPS_HOOKS(MPSHooks)

}  // namespace at
