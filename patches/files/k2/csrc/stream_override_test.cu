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
#include <thread>  // NOLINT

#include "gtest/gtest.h"
#include "k2/csrc/context.h"
#include "k2/csrc/test_utils.h"

namespace k2 {

// OverriddenStream() is defined in test_utils.cu.  So these tests fail if
// `With` of this file changes an object that test_utils.cu does not see.

static const cudaStream_t kDefault = static_cast<cudaStream_t>(0x0);
static const cudaStream_t kFirst = reinterpret_cast<cudaStream_t>(0x10);
static const cudaStream_t kSecond = reinterpret_cast<cudaStream_t>(0x20);

TEST(With, AffectsOtherSourceFiles) {
  EXPECT_EQ(OverriddenStream(kDefault), kDefault);
  {
    With first(kFirst);
    EXPECT_EQ(OverriddenStream(kDefault), kFirst);
    {
      With second(kSecond);
      EXPECT_EQ(OverriddenStream(kDefault), kSecond);
    }
    EXPECT_EQ(OverriddenStream(kDefault), kFirst);
  }
  EXPECT_EQ(OverriddenStream(kDefault), kDefault);
}

TEST(With, EndsWhenAnExceptionLeavesItsScope) {
  With outer(kFirst);
  try {
    With inner(kSecond);
    EXPECT_EQ(OverriddenStream(kDefault), kSecond);
    throw std::runtime_error("leave");
  } catch (const std::runtime_error &) {
    EXPECT_EQ(OverriddenStream(kDefault), kFirst);
  }
}

TEST(With, DoesNotAffectOtherThreads) {
  With first(kFirst);
  cudaStream_t elsewhere = kFirst;
  std::thread([&elsewhere]() {
    elsewhere = OverriddenStream(kDefault);
  }).join();
  EXPECT_EQ(elsewhere, kDefault);
}

}  // namespace k2
