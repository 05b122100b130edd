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

#include "k2/csrc/blocking.h"

#include <stdexcept>

#include "gtest/gtest.h"

namespace k2 {

static int32_t g_num_runs = 0;

static void CountAndRun(const std::function<void()> &f) {
  ++g_num_runs;
  f();
}

TEST(RunBlocking, CallsTheFunctionThatWasSet) {
  int32_t num_calls = 0;
  auto f = [&num_calls]() { ++num_calls; };
  RunBlocking(f);
  EXPECT_EQ(num_calls, 1);
  EXPECT_EQ(g_num_runs, 0);

  SetRunBlocking(CountAndRun);
  RunBlocking(f);
  EXPECT_EQ(num_calls, 2);
  EXPECT_EQ(g_num_runs, 1);
  auto fail = []() { throw std::runtime_error("no memory"); };
  EXPECT_THROW(RunBlocking(fail), std::runtime_error);
  EXPECT_EQ(g_num_runs, 2);

  SetRunBlocking(nullptr);
  RunBlocking(f);
  EXPECT_EQ(num_calls, 3);
  EXPECT_EQ(g_num_runs, 2);
}

}  // namespace k2
