#include <signal.h>

#include <cstdint>
#include <iterator>
#include <memory>

#include "core/fatal.h"
#include "msl/executor.h"
#include "msl/msl.h"

namespace mps_emulator::msl {

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE};
struct sigaction former_actions[std::size(kSignals)];

// Returns the buffer nearest to `address`.  An unbound buffer begins at address
// 0.
const Parameter *NearestBuffer(const Dispatch &dispatch, uintptr_t address) {
  const Parameter *nearest = nullptr;
  uintptr_t distance = UINTPTR_MAX;
  for (const Parameter &parameter : ParametersOf(*dispatch.kernel)) {
    if (parameter.kind != kMpsEmulatorMslBuffer) continue;
    const Binding &binding = dispatch.buffers[parameter.index];
    auto data = reinterpret_cast<uintptr_t>(binding.data);
    uintptr_t away =
        address < data ? data - address : address - data - binding.size;
    if (away >= distance) continue;
    nearest = &parameter;
    distance = away;
  }
  return nearest;
}

void Print(const Executor &executor, int signal, const siginfo_t &info) {
  const Dispatch &dispatch = *executor.dispatch();
  const char *name = dispatch.kernel->name;
  auto address = reinterpret_cast<uintptr_t>(info.si_addr);
  for (const DeviceRange &buffer : dispatch.absent)
    if (buffer.Has(address, 1))
      return PrintFatalInHandler(
          "kernel '%s' accessed byte %zu of MTLBuffer #%lu by its gpuAddress, "
          "but the encoder has no useResource:usage: for the buffer: on a Mac "
          "the buffer may not be resident.  Call useResource:usage: before the "
          "dispatch",
          name, address - buffer.begin, buffer.buffer_id);
  // The race checker reports a mistake at the end of a threadgroup.  After a
  // fault the threadgroup never ends, so the handler prints the checker's
  // report.
  if (const char *failure = executor.failure())
    return PrintFatalInHandler("kernel '%s': %s", name, failure);
  constexpr const char *kAdvice = "MPS_EMULATOR_CHECK_RACES=1 names the line";
  if (signal == SIGFPE)
    return PrintFatalInHandler(
        "kernel '%s' divided an integer by zero, or the smallest integer by "
        "-1: on a GPU the result is undefined",
        name);
  if (executor.stacks().IsGuard(info.si_addr))
    return PrintFatalInHandler(
        "kernel '%s' uses more private memory in one thread than the "
        "emulator's 256 KiB",
        name);
  // For some faults, the processor does not report the address.
  if (info.si_code == SI_KERNEL)
    return PrintFatalInHandler(
        "kernel '%s' accessed an address that no memory can have, or a vector "
        "at an unaligned address.  %s",
        name, kAdvice);
  const Parameter *nearest = NearestBuffer(dispatch, address);
  if (nearest == nullptr)
    return PrintFatalInHandler(
        "kernel '%s' accessed memory outside of its buffers, at %p.  %s", name,
        info.si_addr, kAdvice);
  const Binding &binding = dispatch.buffers[nearest->index];
  if (binding.data == nullptr)
    return PrintFatalInHandler(
        "kernel '%s': no buffer is bound at index %u (parameter '%s'), and the "
        "kernel accesses it: call setBuffer:offset:atIndex: or "
        "setBytes:length:atIndex: before the dispatch",
        name, nearest->index, nearest->name);
  PrintFatalInHandler(
      "kernel '%s' accessed memory outside of its buffers: byte %td of the "
      "nearest buffer, at index %u ('%s'), which has %zu bytes.  %s",
      name,
      static_cast<char *>(info.si_addr) - static_cast<char *>(binding.data),
      nearest->index, nearest->name, binding.size, kAdvice);
}

void OnFault(int signal, siginfo_t *info, void *) {
  const Executor *executor = Executor::OfThisThreadOrNull();
  if (executor != nullptr && executor->dispatch() != nullptr)
    Print(*executor, signal, *info);
  // After the handler returns, the instruction faults again, and the former
  // action runs.
  for (size_t i = 0; i < std::size(kSignals); ++i)
    if (kSignals[i] == signal) sigaction(signal, &former_actions[i], nullptr);
}

bool InstallHandlers() {
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i], &action, &former_actions[i]);
  return true;
}

// A separate stack for signal handlers.  A handler can run there even if the
// thread's stack is full.
class SignalStack {
 public:
  SignalStack() {
    stack_t present;
    if (sigaltstack(nullptr, &present) != 0 || !(present.ss_flags & SS_DISABLE))
      return;
    memory_.reset(new char[kBytes]);
    stack_t own = {};
    own.ss_sp = memory_.get();
    own.ss_size = kBytes;
    sigaltstack(&own, nullptr);
  }
  ~SignalStack() {
    if (memory_ == nullptr) return;
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
  SignalStack(const SignalStack &) = delete;

 private:
  static constexpr size_t kBytes = 64 * 1024;
  std::unique_ptr<char[]> memory_;
};

}  // namespace

void InstallFaultHandler() {
  static const bool installed = InstallHandlers();
  static_cast<void>(installed);
  static thread_local SignalStack stack;
}

}  // namespace mps_emulator::msl
