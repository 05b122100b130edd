#include "extension.h"

#include <ATen/mps/MPSStream.h>
#include <torch/mps.h>

#include <chrono>
#include <thread>

namespace {

template <typename Work>
double NanosecondsEach(int64_t repetitions, const Work &work) {
  auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < repetitions; ++i) work();
  return std::chrono::duration<double, std::nano>(
             std::chrono::steady_clock::now() - start)
             .count() /
         static_cast<double>(repetitions);
}

}  // namespace

void SynchronizeOutsideQueue() { torch::mps::synchronize(); }

void SynchronizeInQueue() {
  dispatch_sync(torch::mps::get_dispatch_queue(), ^{
    torch::mps::synchronize();
  });
}

void CommitStreamOutsideQueue() { torch::mps::commit(); }

double NanosecondsOfIdleWait(int64_t repetitions) {
  torch::mps::synchronize();
  return NanosecondsEach(repetitions, [] { torch::mps::synchronize(); });
}

double NanosecondsOfIdleWaitInQueue(int64_t repetitions) {
  torch::mps::synchronize();
  return NanosecondsEach(repetitions, [] { SynchronizeInQueue(); });
}

void HoldQueue(int64_t milliseconds) {
  dispatch_sync(torch::mps::get_dispatch_queue(), ^{
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  });
}

void ThrowThroughRethrow() {
  at::mps::dispatch_sync_with_rethrow(torch::mps::get_dispatch_queue(), ^{
    TORCH_CHECK(false, "thrown inside the queue");
  });
}
