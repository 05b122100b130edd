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

#include <gtest/gtest.h>
#if K2_WITH_MPS
#include <sys/wait.h>
#include <unistd.h>
#endif  // K2_WITH_MPS

#include <atomic>
#include <cstdint>
#include <thread>  // NOLINT
#include <vector>

#include "k2/csrc/array.h"
#include "k2/csrc/mps/host_memory.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/mps_context.h"
#include "k2/csrc/mps/one_gate.h"
#include "k2/csrc/torch_util.h"

namespace k2 {

#if K2_WITH_MPS

namespace {

mps::KernelSource source("host_memory_test", R"(
#include <metal_stdlib>
using namespace metal;

kernel void add_one(device int *x [[buffer(0)]],
                    uint i [[thread_position_in_grid]]) { x[i] += 1; }
)");

}  // namespace

class HostMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasMps()) GTEST_SKIP() << "There is no mps device.";
    mps_ = GetMpsContext();
    array_ = Array1<int32_t>(mps_, std::vector<int32_t>{1, 2, 3});
  }

  // Waits as a function does before it reads the array.
  int32_t First() {
    mps_->SyncIfOnHost();
    return array_.Data()[0];
  }

  ContextPtr mps_;
  Array1<int32_t> array_;
};

TEST_F(HostMemoryTest, AChildOfForkFreesMemory) {
  std::atomic<bool> stop{false};
  // This thread often holds the lock of the memory when the process forks.
  std::thread other([&] {
    while (!stop) Array1<int32_t>(mps_, 3);
  });
  int32_t status = 0;
  for (int32_t i = 0; i != 200 && status == 0; ++i) {
    const pid_t child = fork();
    if (child < 0) {
      status = -1;
      break;
    }
    if (child == 0) {
      alarm(10);  // ends a child that waits for the lock
      array_ = Array1<int32_t>();
      _exit(0);
    }
    const pid_t ended = waitpid(child, &status, 0);
    EXPECT_EQ(ended, child);
    if (ended != child) break;  // and join the other thread
  }
  stop = true;
  other.join();
  EXPECT_EQ(status, 0);
}

TEST_F(HostMemoryTest, MemoryIsIdleUntilThereIsATensorOfIt) {
  EXPECT_TRUE(mps::IsIdle(array_.Data()));
  EXPECT_TRUE(mps::IsIdle(array_.Data() + 2));
  Array1<int32_t> on_cpu = array_.To(GetCpuContext());
  EXPECT_TRUE(mps::IsIdle(array_.Data()));
  EXPECT_FALSE(mps::IsIdle(on_cpu.Data()));
  ToTorch(array_);
  EXPECT_FALSE(mps::IsIdle(array_.Data()));
}

TEST_F(HostMemoryTest, ACopyFromTheCpuWaitsForReadsOfItsTarget) {
  torch::Tensor doubled = ToTorch(array_) * 2;
  array_.CopyFrom(
      Array1<int32_t>(GetCpuContext(), std::vector<int32_t>{7, 7, 7}));
  EXPECT_EQ(doubled.cpu()[0].item<int32_t>(), 2);
  EXPECT_EQ(First(), 7);
}

TEST_F(HostMemoryTest, ACopyOnMpsWaitsForReadsOfItsTarget) {
  torch::Tensor doubled = ToTorch(array_) * 2;
  array_.CopyFrom(Array1<int32_t>(mps_, std::vector<int32_t>{7, 7, 7}));
  EXPECT_EQ(doubled.cpu()[0].item<int32_t>(), 2);
  EXPECT_EQ(First(), 7);
}

TEST_F(HostMemoryTest, AFunctionWaitsForItsInputs) {
  torch::Tensor tensor = ToTorch(array_);
  tensor.add_(1);
  OneGate gate;
  EXPECT_EQ(First(), 2);
}

TEST_F(HostMemoryTest, AFunctionWaitsAgainAfterItMadeATensor) {
  OneGate gate{ReadsNothing{}};
  ToTorch(array_).add_(1);
  EXPECT_EQ(First(), 2);
}

TEST_F(HostMemoryTest, AFunctionWaitsAgainAfterItTookATensor) {
  torch::Tensor tensor = ToTorch(array_);
  OneGate gate{ReadsNothing{}};
  tensor.add_(1);
  array_ = FromTorch<int32_t>(tensor);
  EXPECT_EQ(First(), 2);
}

TEST_F(HostMemoryTest, AFunctionWaitsAgainAfterAKernel) {
  torch::Tensor tensor = ToTorch(array_);
  OneGate gate{ReadsNothing{}};
  mps::Launch("host_memory_test", "add_one", {1, 3}, {mps::Out(0, tensor)});
  EXPECT_EQ(First(), 2);
}

TEST_F(HostMemoryTest, AddressesOfTensorsNeedAWaitInOneGateToo) {
  torch::Tensor tensor = ToTorch(array_);
  OneGate gate{ReadsNothing{}};
  tensor.add_(1);
  EXPECT_EQ(EvalPtr<int32_t>(tensor)[0], 2);
}

TEST_F(HostMemoryTest, TheWaitOfAFunctionDoesNotCountForTheNext) {
  torch::Tensor tensor = ToTorch(array_);
  {
    OneGate gate;
    First();
  }
  tensor.add_(1);
  EXPECT_EQ(First(), 2);
}

TEST_F(HostMemoryTest, TheGateOfAThreadDoesNotCountForOtherThreads) {
  torch::Tensor tensor = ToTorch(array_);
  OneGate gate{ReadsNothing{}};
  std::thread other([&] {
    tensor.add_(1);
    EXPECT_EQ(First(), 2);
  });
  other.join();
}

#endif  // K2_WITH_MPS

}  // namespace k2
