/**
 * Copyright      2026  The k2-mps authors
 *
 * See LICENSE for clarification regarding multiple authors
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include "k2/csrc/mps/stream.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "k2/csrc/blocking.h"

namespace k2 {
namespace mps {

namespace {

// The kernels that the GPU failed to complete since ThrowIfFailed() last threw.
struct Failures {
  std::atomic<bool> any{false};
  std::mutex mutex;
  std::vector<std::string> kernels;
  // The reason of the first failure.  Later failures are often consequences of
  // the first one.
  std::string reason;
};

Failures &GetFailures() {
  static auto *failures = new Failures;
  return *failures;
}

// Completion handlers of command buffers call this function, on Metal's own
// threads.
void NoteFailure(const std::string &kernel, NSError *error) {
  Failures &failures = GetFailures();
  std::lock_guard<std::mutex> lock(failures.mutex);
  auto &kernels = failures.kernels;
  if (kernels.empty())
    failures.reason = error == nil ? "no reason given"
                                   : [[error localizedDescription] UTF8String];
  if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end())
    kernels.push_back(kernel);
  failures.any = true;
}

// True in a child of fork().  A child has no threads of Metal or of dispatch
// queues, so a call that waits for such a thread would never return.
std::atomic<bool> is_forked{false};

void RefuseFork() {
  static const int noted =
      pthread_atfork(nullptr, nullptr, []() { is_forked = true; });
  static_cast<void>(noted);
  if (is_forked)
    throw std::runtime_error(
        "mps was used before fork(), and cannot be in the child: start "
        "processes by spawn or forkserver, or leave all on the CPU there");
}

// Waits for all of torch's streams.
void Wait() {
  @autoreleasepool {
    torch::mps::synchronize();
  }
}

}  // namespace

void RunInStream(const std::function<void()> &f) {
  RefuseFork();
  // An exception must not leave a block that libdispatch runs.
  std::exception_ptr error;
  auto run = [&error, &f]() {
    try {
      f();
    } catch (...) {
      error = std::current_exception();
    }
  };
  // A block copies the variables that it uses.  So the block below uses a
  // pointer to `run`.
  auto *p = &run;
  RunBlocking([p]() {
    dispatch_sync(torch::mps::get_dispatch_queue(), ^{
      (*p)();
    });
  });
  if (error) std::rethrow_exception(error);
}

void Synchronize() {
  RefuseFork();
  try {
#if K2_TORCH_VERSION_MAJOR > 2 || K2_TORCH_VERSION_MINOR >= 15
    // torch::mps::synchronize() enters the queue of each stream.  If the call
    // ran inside of one of these queues, it would wait for itself forever.
    RunBlocking(Wait);
#else
    // torch::mps::synchronize() commits and releases the open command buffer,
    // and does not enter the queue itself.  Outside of the queue, another
    // thread might be encoding into the buffer at the same time.
    RunInStream(Wait);
#endif
  } catch (...) {
    ThrowIfFailed();
    throw;
  }
  ThrowIfFailed();
}

void NoteKernel(id<MTLCommandBuffer> commands, const std::string &kernel) {
  const std::string label = kernel;  // the block would not copy a reference
  [commands addCompletedHandler:^(id<MTLCommandBuffer> done) {
    if ([done status] == MTLCommandBufferStatusError)
      NoteFailure(label, [done error]);
  }];
}

void ThrowIfFailed() {
  Failures &failures = GetFailures();
  if (!failures.any) return;
  std::string text = "The GPU did not complete";
  {
    std::lock_guard<std::mutex> lock(failures.mutex);
    if (!failures.any.exchange(false)) return;
    const char *separator = " ";
    for (const std::string &kernel : failures.kernels) {
      text += separator + kernel;
      separator = ", ";
    }
    text += ": " + failures.reason + ". The results are not valid.";
    failures.kernels.clear();
  }
  throw std::runtime_error(text);
}

}  // namespace mps
}  // namespace k2
