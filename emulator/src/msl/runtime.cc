// The functions that kernels call.  If the kernel has fibers, a function runs
// on the fiber of the calling thread.
#include <algorithm>
#include <cstring>

#include "core/fatal.h"
#include "msl/executor.h"

namespace mps_emulator::msl {

void Executor::Suspend() {
  Thread *self = running_;
  if (order_next_ < order_size_) {
    running_ = &threads_[order_[order_next_++]];
    // Prefetches the stack of the fiber that runs after the next fiber.
    // Otherwise the switch to that fiber would mostly wait for this memory.
    if (order_next_ < order_size_) {
      auto *stack =
          static_cast<const char *>(threads_[order_[order_next_]].context);
      __builtin_prefetch(stack);
      __builtin_prefetch(stack + 64);
    }
    MpsEmulatorMslSwitch(&self->context, running_->context);
  } else {
    MpsEmulatorMslSwitch(&self->context, main_context_);
  }
}

void Executor::FiberMain() {
  // A fiber always runs on the same host thread, so `self` stays valid.
  Executor *self = executor;
  for (;;) {
    Thread *thread = self->running_;
    self->paths_[thread - self->threads_.data()].calls.clear();
    self->kernel_->thunk(&self->launch_, thread->x, thread->y, thread->z, 1);
    thread->state = State::kFinished;
    --self->unfinished_;
    self->Suspend();
  }
}

Executor::Thread &Executor::RunningFiber(const char *operation) {
  if (running_ == nullptr)
    Fatal(
        "kernel '%s' reached a %s that the compiler did not see: this is an "
        "error of the emulator; please report it with the kernel",
        kernel_->name, operation);
  return *running_;
}

unsigned Executor::ThreadIndex() {
  executor->RunningFiber("simdgroup function");
  return executor->RunningThread();
}

void Executor::ThreadgroupBarrier(unsigned flags, unsigned long site) {
  Executor *self = executor;
  Thread &thread = self->RunningFiber("threadgroup_barrier");
  thread.site = site;
  thread.barrier_flags = flags;
  thread.state = State::kAtBarrier;
  self->Suspend();
}

const void *Executor::SimdgroupExchange(const void *value, unsigned size,
                                        unsigned long site,
                                        mps_emulator_msl_lanes *lanes) {
  Executor *self = executor;
  Thread &thread = self->RunningFiber("simdgroup function");
  thread.site = site;
  thread.value = value;
  thread.value_size = size;
  thread.state = State::kAtExchange;
  self->Suspend();
  unsigned index = self->RunningThread();
  unsigned first = index / kSimdWidth * kSimdWidth;
  unsigned count = std::min(self->thread_count_ - first, kSimdWidth);
  lanes->active = thread.active;
  lanes->present = UINT32_MAX >> (kSimdWidth - count);
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
        "kernel '%s' uses more threadgroup memory than the compiler counted: "
        "this is an error of the emulator; please report it with the kernel",
        self->kernel_->name);
  char *variable = self->memory_begin_ + offset;
  memset(variable, kPoison, size);
  self->memory_used_ = offset + size;
  self->pieces_.push_back({offset, size, -1});
  if (slot >= self->variables_.size()) self->variables_.resize(slot + 1);
  self->variables_[slot] = variable;
  return variable;
}

void Executor::EnterCall(unsigned long site) {
  executor->RunningFiber("function with a barrier");
  executor->paths_[executor->RunningThread()].Enter(site);
}

void Executor::LeaveCall() {
  executor->paths_[executor->RunningThread()].Leave();
}

unsigned Executor::RunningThread() const {
  return running_ == nullptr
             ? looping_thread_
             : static_cast<unsigned>(running_ - threads_.data());
}

bool Executor::IsOnStack(const void *address) const {
  if (running_ != nullptr) return stacks_.Contains(address);
  // Without fibers, the kernel's frames are between the frame of this function
  // and the frame of Run(), which calls the kernel.
  auto at = reinterpret_cast<uintptr_t>(address);
  return at > reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) &&
         at < reinterpret_cast<uintptr_t>(outermost_frame_);
}

bool Executor::IsExchanged(const void *address) const {
  auto offset = reinterpret_cast<uintptr_t>(address) -
                reinterpret_cast<uintptr_t>(exchange_buffers_.get());
  return offset < (threads_.size() + kSimdWidth - 1) / kSimdWidth *
                      sizeof(ExchangeBuffer);
}

void Executor::Access(const void *address, unsigned long size, unsigned flags,
                      const void *place) {
  Executor *self = executor;
  if (self->IsOnStack(address) || self->IsExchanged(address)) return;
  if (self->checker_ != nullptr)
    self->checker_->Access(self->RunningThread(), address, size, flags, place);
  if (self->validator_ != nullptr)
    self->validator_->Access(address, size, flags, place);
}

void Executor::Fence(unsigned flags) {
  Executor *self = executor;
  if (self->checker_ != nullptr)
    self->checker_->Fence(self->RunningThread(), flags);
}

void Executor::SimdgroupBarrier(unsigned flags) {
  Executor *self = executor;
  if (self->checker_ != nullptr)
    self->checker_->PassSimdgroupBarrier(self->RunningThread(), flags);
}

void Executor::InactiveLane(unsigned lane, unsigned long site) {
  Executor *self = executor;
  if (self->checker_ != nullptr)
    self->checker_->ReadInactiveLane(self->RunningThread(), lane, LineOf(site));
}

void Executor::OutsideArray(const char *type, long index, unsigned line) {
  Executor *self = executor;
  if (self->checker_ == nullptr) return;
  self->checker_->UseOutsideOfArray(self->RunningThread(), type, index, line);
  // Without fibers, the report comes now, before the access, which could hit
  // any memory.  With fibers, the kernel cannot end here, so the report comes
  // when the access faults or when the threadgroup ends.
  if (self->running_ == nullptr) self->checker_->EndThreadgroup();
}

void Executor::OutsideInteger(float value, const char *type, unsigned line) {
  Executor *self = executor;
  if (self->checker_ != nullptr)
    self->checker_->ConvertOutside(self->RunningThread(), value, type, line);
}

struct RuntimeTable {
  static constexpr mps_emulator_msl_runtime kFunctions = {
      &Executor::ThreadIndex,
      &Executor::ThreadgroupBarrier,
      &Executor::SimdgroupExchange,
      &Executor::ThreadgroupVariable,
      &Executor::EnterCall,
      &Executor::LeaveCall,
      &Executor::Access,
      &Executor::Fence,
      &Executor::SimdgroupBarrier,
      &Executor::InactiveLane,
      &Executor::OutsideArray,
      &Executor::OutsideInteger,
  };
};

const mps_emulator_msl_runtime *Runtime() { return &RuntimeTable::kFunctions; }

}  // namespace mps_emulator::msl
