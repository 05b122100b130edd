#include "msl/executor.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string>

#include "core/fatal.h"

namespace mps_emulator::msl {

namespace {

// What threadgroup memory holds before a kernel writes to it, and what an
// exchange gives for a lane that takes no part: as a float, -102286.55.
constexpr int kPoison = 0xC7;

// The limit of threadgroup memory, and room for aligning its pieces.
constexpr size_t kMemoryBytes = 2 * kMaxThreadgroupBytes;
constexpr size_t kMemoryAlignment = 256;
constexpr size_t kVariableAlignment = 16;

__attribute__((tls_model("initial-exec"))) thread_local Executor *executor =
    nullptr;

size_t AlignUp(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

unsigned LineOf(uint64_t site) { return static_cast<unsigned>(site >> 32); }

}  // namespace

Executor &Executor::OfThisThread() {
  // Owned apart from the plain pointer, which a signal handler may read.
  static thread_local std::unique_ptr<Executor> owner;
  if (owner == nullptr) {
    owner = std::make_unique<Executor>();
    executor = owner.get();
  }
  return *owner;
}

const Executor *Executor::OfThisThreadOrNull() { return executor; }

Executor::Executor() : memory_(new char[kMemoryBytes + kMemoryAlignment]) {
  memory_begin_ = reinterpret_cast<char *>(
      AlignUp(reinterpret_cast<uintptr_t>(memory_.get()), kMemoryAlignment));
}

void Executor::Run(const Dispatch &dispatch,
                   const mps_emulator_msl_kernel &kernel) {
  // Also when a handler of Fatal() leaves by an exception, the next dispatch
  // finds everything as if there had been none.
  struct Cleanup {
    Executor *executor;
    ~Cleanup() {
      executor->dispatch_ = nullptr;
      if (executor->unfinished_ > 0) executor->started_ = 0;
      executor->unfinished_ = 0;
      executor->running_ = nullptr;
    }
  } cleanup{this};

  dispatch_ = &dispatch;
  kernel_ = &kernel;
  schedule_ = Schedule::FromEnvironment();

  uint32_t groups[3];
  for (int d = 0; d < 3; ++d) {
    groups[d] = (dispatch.grid[d] + dispatch.threadgroup[d] - 1) /
                dispatch.threadgroup[d];
    launch_.dispatch_threadgroup_size[d] = dispatch.threadgroup[d];
    launch_.grid_size[d] = dispatch.grid[d];
    launch_.threadgroup_count[d] = groups[d];
  }
  for (unsigned i = 0; i < kMaxBuffers; ++i)
    launch_.buffers[i] = dispatch.buffers[i].data;
  PlaceThreadgroupBuffers(kernel);

  if (kernel.flags & kMpsEmulatorMslNeedsFibers) {
    unsigned most = dispatch.threadgroup[0] * dispatch.threadgroup[1] *
                    dispatch.threadgroup[2];
    if (most > threads_.size()) {
      // Larger stacks lie elsewhere, so all fibers begin anew.
      started_ = 0;
      if (!stacks_.Reserve(most))
        Fatal(
            "kernel '%s': no memory for the stacks of %u threads: allow this "
            "process %zu MiB more of address space",
            kernel.name, most, most * FiberStacks::kStackBytes / (1024 * 1024));
      threads_.resize(most);
      exchange_buffers_.reset(
          new ExchangeBuffer[(most + kSimdWidth - 1) / kSimdWidth]);
    }
  }

  if (schedule_.is_forward()) {
    for (uint32_t z = 0; z < groups[2]; ++z)
      for (uint32_t y = 0; y < groups[1]; ++y)
        for (uint32_t x = 0; x < groups[0]; ++x) RunThreadgroup(x, y, z);
    return;
  }
  std::vector<uint32_t> order(groups[0] * groups[1] * groups[2]);
  std::iota(order.begin(), order.end(), 0u);
  schedule_.Arrange(std::span<uint32_t>(order));
  for (uint32_t group : order)
    RunThreadgroup(group % groups[0], group / groups[0] % groups[1],
                   group / groups[0] / groups[1]);
}

void Executor::PlaceThreadgroupBuffers(const mps_emulator_msl_kernel &kernel) {
  memory_used_ = 0;
  variables_.clear();
  for (unsigned i = 0; i < kernel.parameter_count; ++i) {
    const mps_emulator_msl_parameter &parameter = kernel.parameters[i];
    if (parameter.kind != kMpsEmulatorMslThreadgroup) continue;
    launch_.threadgroup_buffers[parameter.index] = memory_begin_ + memory_used_;
    memory_used_ =
        AlignUp(memory_used_ + dispatch_->threadgroup_bytes[parameter.index],
                kVariableAlignment);
  }
}

void Executor::RunThreadgroup(uint32_t x, uint32_t y, uint32_t z) {
  const uint32_t position[3] = {x, y, z};
  thread_count_ = 1;
  for (int d = 0; d < 3; ++d) {
    uint32_t full = dispatch_->threadgroup[d];
    launch_.threadgroup_position[d] = position[d];
    launch_.threadgroup_size[d] =
        std::min(full, dispatch_->grid[d] - position[d] * full);
    thread_count_ *= launch_.threadgroup_size[d];
  }
  memset(memory_begin_, kPoison, memory_used_);
  if (kernel_->flags & kMpsEmulatorMslNeedsFibers)
    RunOnFibers();
  else
    RunAsLoop();
}

void Executor::CallKernel(unsigned thread_index, unsigned count) {
  unsigned width = launch_.threadgroup_size[0];
  unsigned height = launch_.threadgroup_size[1];
  kernel_->thunk(&launch_, thread_index % width, thread_index / width % height,
                 thread_index / width / height, count);
}

void Executor::RunAsLoop() {
  if (schedule_.is_forward()) {
    unsigned width = launch_.threadgroup_size[0];
    for (unsigned i = 0; i < thread_count_; i += width) CallKernel(i, width);
    return;
  }
  std::array<uint16_t, kMaxThreadsPerThreadgroup> order;
  std::iota(order.begin(), order.begin() + thread_count_, uint16_t{0});
  schedule_.Arrange(std::span<uint16_t>(order.data(), thread_count_));
  for (unsigned i = 0; i < thread_count_; ++i) CallKernel(order[i], 1);
}

void Executor::StartFibers() {
  for (; started_ < thread_count_; ++started_)
    threads_[started_].context = stacks_.Start(started_, &FiberMain);
}

void Executor::RunOnFibers() {
  StartFibers();
  for (unsigned i = 0; i < thread_count_; ++i)
    threads_[i].state = State::kReady;
  unfinished_ = thread_count_;

  unsigned simdgroups = (thread_count_ + kSimdWidth - 1) / kSimdWidth;
  std::array<uint8_t, kMaxThreadsPerThreadgroup / kSimdWidth> ready;
  while (unfinished_ > 0) {
    unsigned count = simdgroups;
    std::iota(ready.begin(), ready.begin() + count, uint8_t{0});
    while (count > 0) {
      unsigned pick = schedule_.Pick(count);
      unsigned simdgroup = ready[pick];
      RunSimdgroup(simdgroup);
      CompleteExchange(simdgroup);
      if (order_size_ == 0) {
        // No exchange was waited for: only the threadgroup as a whole can
        // bring this simdgroup further.
        std::copy(ready.begin() + pick + 1, ready.begin() + count,
                  ready.begin() + pick);
        --count;
      }
    }
    if (unfinished_ > 0) CompleteBarrier();
  }
}

void Executor::RunSimdgroup(unsigned simdgroup) {
  unsigned first = simdgroup * kSimdWidth;
  unsigned last = std::min(first + kSimdWidth, thread_count_);
  order_size_ = 0;
  for (unsigned i = first; i < last; ++i)
    if (threads_[i].state == State::kReady)
      order_[order_size_++] = static_cast<uint16_t>(i);
  if (order_size_ == 0) return;
  schedule_.Arrange(std::span<uint16_t>(order_.data(), order_size_));
  order_next_ = 1;
  running_ = &threads_[order_[0]];
  MpsEmulatorMslSwitch(&main_context_, running_->context);
  running_ = nullptr;
}

void Executor::CompleteExchange(unsigned simdgroup) {
  unsigned first = simdgroup * kSimdWidth;
  unsigned last = std::min(first + kSimdWidth, thread_count_);
  order_size_ = 0;
  uint64_t site = UINT64_MAX;
  for (unsigned i = first; i < last; ++i)
    if (threads_[i].state == State::kAtExchange)
      site = std::min(site, threads_[i].site);
  if (site == UINT64_MAX) return;

  char *values = exchange_buffers_[simdgroup].bytes;
  unsigned active = 0;
  unsigned size = 0;
  for (unsigned i = first; i < last; ++i) {
    const Thread &thread = threads_[i];
    if (thread.state != State::kAtExchange || thread.site != site) continue;
    size = thread.value_size;
    active |= 1u << (i - first);
  }
  if (active != UINT32_MAX) memset(values, kPoison, kSimdWidth * size);
  for (unsigned i = first; i < last; ++i) {
    if ((active >> (i - first) & 1) == 0) continue;
    Thread &thread = threads_[i];
    memcpy(values + (i - first) * size, thread.value, size);
    thread.active = active;
    thread.state = State::kReady;
    ++order_size_;
  }
}

void Executor::CompleteBarrier() {
  for (unsigned i = 0; i < thread_count_; ++i)
    if (threads_[i].state != State::kAtBarrier ||
        threads_[i].site != threads_[0].site)
      FailAtBarrier();
  for (unsigned i = 0; i < thread_count_; ++i)
    threads_[i].state = State::kReady;
}

void Executor::FailAtBarrier() {
  std::map<unsigned, unsigned> waiting;  // threads by line
  unsigned returned = 0;
  for (unsigned i = 0; i < thread_count_; ++i) {
    if (threads_[i].state == State::kAtBarrier)
      ++waiting[LineOf(threads_[i].site)];
    else
      ++returned;
  }
  std::string places;
  for (auto [line, count] : waiting) {
    if (!places.empty()) places += ", ";
    places += std::to_string(count) + " of " + std::to_string(thread_count_) +
              " threads wait at the one in line " + std::to_string(line);
  }
  if (returned > 0)
    places += ", " + std::to_string(returned) + " have returned";
  Fatal(
      "kernel '%s', threadgroup (%u, %u, %u): divergent threadgroup_barrier: "
      "%s. On a GPU this is undefined, often a hang: every thread of a "
      "threadgroup has to reach the same threadgroup_barrier call",
      kernel_->name, launch_.threadgroup_position[0],
      launch_.threadgroup_position[1], launch_.threadgroup_position[2],
      places.c_str());
}

void Executor::Suspend() {
  Thread *self = running_;
  if (order_next_ < order_size_) {
    running_ = &threads_[order_[order_next_++]];
    MpsEmulatorMslSwitch(&self->context, running_->context);
  } else {
    MpsEmulatorMslSwitch(&self->context, main_context_);
  }
}

void Executor::FiberMain() {
  // A fiber never changes its thread of the host, so `self` stays right.
  Executor *self = executor;
  for (;;) {
    unsigned index =
        static_cast<unsigned>(self->running_ - self->threads_.data());
    self->CallKernel(index, 1);
    self->running_->state = State::kFinished;
    --self->unfinished_;
    self->Suspend();
  }
}

Executor::Thread &Executor::RunningFiber(const char *operation) {
  if (running_ == nullptr)
    Fatal(
        "kernel '%s' reached a %s that its compilation had not seen: this is "
        "an error of the emulator; please report it with the kernel",
        kernel_->name, operation);
  return *running_;
}

unsigned Executor::ThreadIndex() {
  Executor *self = executor;
  Thread &thread = self->RunningFiber("simdgroup function");
  return static_cast<unsigned>(&thread - self->threads_.data());
}

void Executor::ThreadgroupBarrier(unsigned, unsigned long site) {
  Executor *self = executor;
  Thread &thread = self->RunningFiber("threadgroup_barrier");
  thread.site = site;
  thread.state = State::kAtBarrier;
  self->Suspend();
}

const void *Executor::SimdgroupExchange(const void *value, unsigned size,
                                        unsigned long site, unsigned *active) {
  Executor *self = executor;
  Thread &thread = self->RunningFiber("simdgroup function");
  thread.site = site;
  thread.value = value;
  thread.value_size = size;
  thread.state = State::kAtExchange;
  self->Suspend();
  *active = thread.active;
  auto index = static_cast<unsigned>(&thread - self->threads_.data());
  return self->exchange_buffers_[index / kSimdWidth].bytes;
}

void *Executor::ThreadgroupVariable(unsigned slot, unsigned long size,
                                    unsigned long alignment) {
  Executor *self = executor;
  if (slot < self->variables_.size() && self->variables_[slot] != nullptr)
    return self->variables_[slot];
  size_t offset = AlignUp(self->memory_used_,
                          std::max<size_t>(alignment, kVariableAlignment));
  if (offset + size > kMemoryBytes)
    Fatal(
        "kernel '%s' uses more threadgroup memory than its compilation had "
        "seen: this is an error of the emulator; please report it with the "
        "kernel",
        self->kernel_->name);
  char *variable = self->memory_begin_ + offset;
  memset(variable, kPoison, size);
  self->memory_used_ = offset + size;
  if (slot >= self->variables_.size()) self->variables_.resize(slot + 1);
  self->variables_[slot] = variable;
  return variable;
}

struct RuntimeTable {
  static constexpr mps_emulator_msl_runtime kFunctions = {
      &Executor::ThreadIndex,
      &Executor::ThreadgroupBarrier,
      &Executor::SimdgroupExchange,
      &Executor::ThreadgroupVariable,
  };
};

const mps_emulator_msl_runtime *Runtime() { return &RuntimeTable::kFunctions; }

}  // namespace mps_emulator::msl
