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

#include <exception>

#include "k2/csrc/blocking.h"

namespace k2 {
namespace mps {

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
  // A block copies the variables that it uses; so it uses pointers.
  auto *p = &run;
  RunBlocking([p]() {
    dispatch_sync(torch::mps::get_dispatch_queue(), ^{
      (*p)();
    });
  });
  if (error) std::rethrow_exception(error);
}

void Synchronize() {
  // torch::mps::synchronize() commits and releases the open command buffer
  // without entering the queue: another thread may be encoding in that buffer.
  RunInStream([] { torch::mps::synchronize(); });
}

}  // namespace mps
}  // namespace k2
