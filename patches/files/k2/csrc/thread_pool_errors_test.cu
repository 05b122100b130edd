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

#include <stdexcept>
#include <string>

#include "gtest/gtest.h"
#include "k2/csrc/thread_pool.h"

namespace k2 {

TEST(ThreadPool, GetThrowsWhatTheTaskThrew) {
  ThreadPool pool(2);
  std::future<void> fails =
      pool.SubmitTask([]() { throw std::runtime_error("no memory"); });
  int32_t done = 0;
  std::future<void> works = pool.SubmitTask([&done]() { done = 1; });
  works.get();
  EXPECT_EQ(done, 1);
  std::string reason;
  try {
    fails.get();
  } catch (const std::runtime_error &e) {
    reason = e.what();
  }
  EXPECT_EQ(reason, "no memory");

  // The thread that ran the failed task still runs other tasks.
  for (int32_t i = 0; i != 10; ++i)
    pool.SubmitTask([&done]() { done += 1; }).get();
  EXPECT_EQ(done, 11);
}

}  // namespace k2
