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

#include <atomic>
#include <exception>
#include <functional>
#include <stdexcept>

#include "k2/csrc/blocking.h"

namespace k2 {
namespace mps {

namespace {

// True in a child of fork().  A child has no threads of Metal or of dispatch
// queues, so a call that waits for such a thread would never return.
std::atomic<bool> is_forked{false};

}  // namespace

void RefuseFork() {
  static const int noted =
      pthread_atfork(nullptr, nullptr, []() { is_forked = true; });
  static_cast<void>(noted);
  if (is_forked)
    throw std::runtime_error(
        "mps was used before fork(), and cannot be used in the child: start "
        "processes by spawn or forkserver, or leave all on the CPU there");
}

namespace {

// Waits for all of torch's streams.
void Wait() {
  @autoreleasepool {
    torch::mps::synchronize();
  }
}

#if K2_TORCH_VERSION_MAJOR == 2 && K2_TORCH_VERSION_MINOR < 15
// torch queues work for the GPU in a stream.  The stream has one command buffer
// at a time that is open for encoding.  A serial dispatch queue guards the
// stream and this command buffer.

// Runs `f` inside of the dispatch queue of the stream, and returns when `f` has
// returned.  Rethrows an exception of `f`.
void RunInStream(const std::function<void()> &f) {
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
#endif

}  // namespace

void Synchronize() {
  RefuseFork();
#if K2_TORCH_VERSION_MAJOR > 2 || K2_TORCH_VERSION_MINOR >= 15
  // torch::mps::synchronize() enters the queue of each stream (see
  // synchronizeAllMPSStreams() in torch's MPSStream.mm).  If the call ran
  // inside of one of these queues, it would wait for itself forever.
  RunBlocking(Wait);
#else
  // torch::mps::synchronize() commits and releases the open command buffer,
  // and does not enter the queue itself (see MPSStream::synchronize() in
  // torch's MPSStream.mm).  Outside of the queue, another thread might be
  // encoding into the buffer at the same time.
  RunInStream(Wait);
#endif
}

}  // namespace mps
}  // namespace k2
