#include "msl/executor.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string>

#include "core/fatal.h"

namespace mps_emulator::msl {

constinit thread_local Executor *executor = nullptr;

Executor &Executor::OfThisThread() {
  // Signal handlers read the plain pointer `executor` instead.
  static thread_local std::unique_ptr<Executor> owner;
  if (owner == nullptr) {
    owner = std::make_unique<Executor>();
    executor = owner.get();
  }
  return *owner;
}

const Executor *Executor::OfThisThreadOrNull() { return executor; }

Executor::Executor() : memory_(new char[kMemoryBytes + kMemoryAlignment]) {
  InstallFaultHandler();
  memory_begin_ = reinterpret_cast<char *>(
      AlignUp(reinterpret_cast<uintptr_t>(memory_.get()), kMemoryAlignment));
}

void Executor::Run(const Dispatch &dispatch) {
  outermost_frame_ = __builtin_frame_address(0);
  // Restores the state for the next dispatch, even if a handler of Fatal()
  // throws an exception.
  struct Cleanup {
    Executor *executor;
    ~Cleanup() {
      if (executor->validator_ != nullptr) executor->validator_->End();
      executor->dispatch_ = nullptr;
      if (executor->unfinished_ > 0) executor->started_ = 0;
      executor->unfinished_ = 0;
      executor->running_ = nullptr;
    }
  } cleanup{this};

  dispatch_ = &dispatch;
  kernel_ = dispatch.kernel;
  watchdog_.Watch();
  schedule_ = Schedule::FromEnvironment();
  DescribeLaunch();
  PlaceThreadgroupBuffers();
  BeginChecks();
  if (kernel_->flags & kMpsEmulatorMslNeedsFibers) ReserveFibers();
  RunThreadgroups();
  if (checker_ != nullptr) checker_->End();
}

void Executor::DescribeLaunch() {
  for (int d = 0; d < 3; ++d) {
    launch_.dispatch_threadgroup_size[d] = dispatch_->threadgroup[d];
    launch_.grid_size[d] = dispatch_->grid[d];
    launch_.threadgroup_count[d] =
        (dispatch_->grid[d] + dispatch_->threadgroup[d] - 1) /
        dispatch_->threadgroup[d];
  }
  for (unsigned i = 0; i < kMaxBuffers; ++i)
    launch_.buffers[i] = dispatch_->buffers[i].data;
}

void Executor::BeginChecks() {
  if (!CheckRaces()) {
    checker_ = nullptr;
  } else {
    if (checker_ == nullptr) checker_ = std::make_unique<RaceChecker>();
    checker_->Begin(*dispatch_, &launch_, memory_begin_, kMemoryBytes,
                    &pieces_);
  }
  if (!ValidatesShaders()) {
    validator_ = nullptr;
  } else {
    if (validator_ == nullptr) validator_ = std::make_unique<Validator>();
    validator_->Begin(*dispatch_, &launch_, memory_begin_, kMemoryBytes,
                      &pieces_);
  }
}

void Executor::ReserveFibers() {
  unsigned most = dispatch_->threadgroup[0] * dispatch_->threadgroup[1] *
                  dispatch_->threadgroup[2];
  if (most <= threads_.size()) return;
  // The new stacks have other addresses, so all fibers start again.
  started_ = 0;
  if (!stacks_.Reserve(most))
    Fatal(
        "kernel '%s': no memory for the stacks of %u threads: allow this "
        "process %zu MiB more of address space",
        kernel_->name, most, most * FiberStacks::kStackBytes / (1024 * 1024));
  threads_.resize(most);
  paths_.resize(most);
  exchange_buffers_.reset(
      new ExchangeBuffer[(most + kSimdWidth - 1) / kSimdWidth]);
}

void Executor::RunThreadgroups() {
  const unsigned(&groups)[3] = launch_.threadgroup_count;
  const uint64_t count = uint64_t{groups[0]} * groups[1] * groups[2];
  std::vector<uint32_t> order;
  if (!schedule_.is_forward()) {
    order.resize(count);
    std::iota(order.begin(), order.end(), 0u);
    schedule_.Arrange(std::span<uint32_t>(order));
  }
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t group = order.empty() ? i : order[i];
    RunThreadgroup(group % groups[0], group / groups[0] % groups[1],
                   group / groups[0] / groups[1]);
  }
}

void Executor::PlaceThreadgroupBuffers() {
  memory_used_ = 0;
  variables_.clear();
  pieces_.clear();
  for (const Parameter &parameter : ParametersOf(*kernel_)) {
    if (parameter.kind != kMpsEmulatorMslThreadgroup) continue;
    size_t bytes = dispatch_->threadgroup_bytes[parameter.index];
    launch_.threadgroup_buffers[parameter.index] = memory_begin_ + memory_used_;
    pieces_.push_back({memory_used_, bytes, static_cast<int>(parameter.index)});
    memory_used_ = AlignUp(memory_used_ + bytes + kRedzone, kVariableAlignment);
  }
}

void Executor::CheckThreadgroupBuffers() const {
  for (const ThreadgroupPiece &piece : pieces_) {
    if (piece.argument < 0) continue;
    const char *redzone = memory_begin_ + piece.offset + piece.bytes;
    for (size_t i = 0; i < kRedzone; ++i) {
      if (static_cast<unsigned char>(redzone[i]) == kPoison) continue;
      Fatal(
          "kernel '%s', threadgroup (%u, %u, %u): a thread wrote to byte %zu "
          "of the threadgroup memory at index %d, which has %zu bytes: pass "
          "the "
          "number of bytes that the kernel uses to "
          "setThreadgroupMemoryLength:atIndex:",
          kernel_->name, launch_.threadgroup_position[0],
          launch_.threadgroup_position[1], launch_.threadgroup_position[2],
          piece.bytes + i, piece.argument, piece.bytes);
    }
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
  if (checker_ != nullptr) checker_->BeginThreadgroup(thread_count_);
  if (kernel_->flags & kMpsEmulatorMslNeedsFibers)
    RunOnFibers();
  else
    RunAsLoop();
  if (checker_ != nullptr) checker_->EndThreadgroup();
  if (validator_ != nullptr) validator_->Restore();
  CheckThreadgroupBuffers();
  progress_ = progress_ + 1;
}

void Executor::RunAsLoop() {
  unsigned width = launch_.threadgroup_size[0];
  unsigned height = launch_.threadgroup_size[1];
  unsigned depth = launch_.threadgroup_size[2];
  if (schedule_.is_forward() && checker_ == nullptr) {
    for (unsigned z = 0; z < depth; ++z)
      for (unsigned y = 0; y < height; ++y)
        kernel_->thunk(&launch_, 0, y, z, width);
    return;
  }
  std::array<uint16_t, kMaxThreadsPerThreadgroup> order;
  std::iota(order.begin(), order.begin() + thread_count_, uint16_t{0});
  schedule_.Arrange(std::span<uint16_t>(order.data(), thread_count_));
  for (unsigned i = 0; i < thread_count_; ++i) {
    looping_thread_ = order[i];
    kernel_->thunk(&launch_, order[i] % width, order[i] / width % height,
                   order[i] / width / height, 1);
  }
}

void Executor::StartFibers() {
  for (; started_ < thread_count_; ++started_)
    threads_[started_].context = stacks_.Start(started_, &FiberMain);
}

void Executor::RunOnFibers() {
  StartFibers();
  Thread *thread = threads_.data();
  for (uint16_t z = 0; z < launch_.threadgroup_size[2]; ++z) {
    for (uint16_t y = 0; y < launch_.threadgroup_size[1]; ++y) {
      for (uint16_t x = 0; x < launch_.threadgroup_size[0]; ++x, ++thread) {
        thread->x = x;
        thread->y = y;
        thread->z = z;
        thread->state = State::kReady;
      }
    }
  }
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
        // No thread waits for an exchange: the simdgroup can go on only after
        // a threadgroup barrier.
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
  unsigned leader = last;
  for (unsigned i = first; i < last; ++i)
    if (threads_[i].state == State::kAtExchange &&
        (leader == last || IsBefore(i, leader)))
      leader = i;
  if (leader == last) return;

  char *values = exchange_buffers_[simdgroup].bytes;
  unsigned size = threads_[leader].value_size;
  unsigned active = 0;
  for (unsigned i = first; i < last; ++i)
    if (threads_[i].state == State::kAtExchange && AtSamePlace(i, leader))
      active |= 1u << (i - first);
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
    if (threads_[i].state != State::kAtBarrier || !AtSamePlace(i, 0))
      FailAtBarrier();
  for (unsigned i = 0; i < thread_count_; ++i)
    threads_[i].state = State::kReady;
  if (checker_ != nullptr)
    checker_->PassThreadgroupBarrier(threads_[0].barrier_flags);
}

void Executor::FailAtBarrier() {
  std::map<std::string, unsigned> waiting;  // how many threads wait, by place
  unsigned returned = 0;
  for (unsigned i = 0; i < thread_count_; ++i) {
    if (threads_[i].state == State::kAtBarrier)
      ++waiting[DescribePlace(i)];
    else
      ++returned;
  }
  std::string places;
  for (const auto &[place, count] : waiting) {
    if (!places.empty()) places += ", ";
    places += std::to_string(count) + " of " + std::to_string(thread_count_) +
              " threads wait in " + place;
  }
  if (returned > 0)
    places += ", " + std::to_string(returned) + " have returned";
  Fatal(
      "kernel '%s', threadgroup (%u, %u, %u): divergent threadgroup_barrier: "
      "%s. On a GPU the effect is undefined, often a hang: every thread of a "
      "threadgroup must reach the same threadgroup_barrier call",
      kernel_->name, launch_.threadgroup_position[0],
      launch_.threadgroup_position[1], launch_.threadgroup_position[2],
      places.c_str());
}

uint64_t Executor::CallPath::Hash() const {
  return calls.empty() ? 0 : calls.back().hash;
}

void Executor::CallPath::Enter(uint64_t site) {
  uint64_t hash = (Hash() ^ site) * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 32;
  calls.push_back({site, hash});
}

bool Executor::AtSamePlace(unsigned a, unsigned b) const {
  return threads_[a].site == threads_[b].site &&
         paths_[a].calls.size() == paths_[b].calls.size() &&
         paths_[a].Hash() == paths_[b].Hash();
}

bool Executor::IsBefore(unsigned a, unsigned b) const {
  const std::vector<Call> &calls_a = paths_[a].calls;
  const std::vector<Call> &calls_b = paths_[b].calls;
  for (size_t level = 0;; ++level) {
    bool called_a = level < calls_a.size();
    bool called_b = level < calls_b.size();
    uint64_t site_a = called_a ? calls_a[level].site : threads_[a].site;
    uint64_t site_b = called_b ? calls_b[level].site : threads_[b].site;
    if (site_a != site_b) return site_a < site_b;
    if (!called_a || !called_b) return false;
  }
}

std::string Executor::DescribePlace(unsigned thread) const {
  std::string text = "line " + std::to_string(LineOf(threads_[thread].site));
  const std::vector<Call> &calls = paths_[thread].calls;
  for (auto call = calls.rbegin(); call != calls.rend(); ++call)
    text += ", called in line " + std::to_string(LineOf(call->site));
  return text;
}

}  // namespace mps_emulator::msl
