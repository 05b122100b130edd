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

#include <stdexcept>
#include <utility>
#include <vector>

#include "k2/csrc/mps/grid.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/mps_context.h"
#include "torch/all.h"

namespace k2 {

#if K2_WITH_MPS

namespace {

mps::KernelSource source("metal_test", R"(
#include <metal_stdlib>
using namespace metal;

enum Buffer { kX, kY, kParams };

struct Params {
  int factor;
  int size;
};

kernel void add_scaled(device const int *x [[buffer(kX)]],
                       device int *y [[buffer(kY)]],
                       constant Params &params [[buffer(kParams)]],
                       uint i [[thread_position_in_grid]]) {
  if (int(i) < params.size) y[i] += params.factor * x[i];
}

[[max_total_threads_per_threadgroup(128)]]
kernel void few_threads(device int *x [[buffer(kX)]]) { x[0] = 0; }

[[max_total_threads_per_threadgroup(128)]]
kernel void much_memory(device int *x [[buffer(kX)]],
                        uint i [[thread_index_in_threadgroup]]) {
  threadgroup int memory[6000];
  memory[6 * i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = memory[6 * (127 - i)];
}
)");
mps::KernelSource broken("metal_test_broken", "kernel void f() { nothing; }");

enum Buffer { kX, kY, kParams };

struct Params {
  int32_t factor, size;
};

}  // namespace

class MetalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasMps()) GTEST_SKIP() << "There is no mps device.";
    auto options = torch::dtype(torch::kInt).device(kTorchMps);
    x_ = torch::arange(1000, options);
    y_ = torch::ones({1000}, options);
  }

  void AddScaled(int32_t factor, mps::Grid grid) {
    mps::Launch("metal_test", "add_scaled", grid,
                {mps::In(kX, x_), mps::Out(kY, y_),
                 mps::In(kParams, Params{factor, 900})});
  }

  torch::Tensor x_, y_;
};

TEST_F(MetalTest, KernelsRunInTheOrderOfTorchsStream) {
  AddScaled(2, {4, 256});
  x_.add_(1);
  AddScaled(3, {4, 256});
  torch::Tensor i = torch::arange(1000, torch::kInt),
                expected = torch::where(i < 900, 1 + 2 * i + 3 * (i + 1), 1);
  EXPECT_TRUE(torch::equal(y_.cpu(), expected));
}

TEST_F(MetalTest, WithoutThreadsNoKernelRuns) {
  AddScaled(2, {0, 256});
  AddScaled(2, {4, 0});
  EXPECT_TRUE(torch::equal(y_.cpu(), torch::ones({1000}, torch::kInt)));
}

TEST_F(MetalTest, LaunchNotesWhichArgumentsTheKernelWrites) {
  AddScaled(2, {4, 256});
  int32_t found = 0;
  for (const mps::PassedArguments &passed : mps::GetPassedArguments()) {
    if (passed.kernel != "add_scaled") continue;
    ++found;
    EXPECT_EQ(passed.source, "metal_test");
    EXPECT_EQ(passed.in, 1u << kX | 1u << kParams);
    EXPECT_EQ(passed.out, 1u << kY);
  }
  EXPECT_EQ(found, 1);
}

TEST_F(MetalTest, LaunchInPartsDividesALongKernel) {
  using Parts = std::vector<std::pair<int32_t, int32_t>>;
  auto parts_of = [&](int64_t work, int64_t num_steps, int64_t num_waves = 1) {
    Parts parts;
    mps::LaunchInParts(work, num_steps, num_waves,
                       [&](int32_t first, int32_t last) {
                         parts.push_back({first, last});
                         AddScaled(1, {4, 256});
                       });
    return parts;
  };
  const int32_t most = 1 << 16;
  const int64_t work = int64_t{1} << 28;
  EXPECT_EQ(parts_of(0, 0), (Parts{{0, 0}}));
  EXPECT_EQ(parts_of(work, most), (Parts{{0, most}}));
  EXPECT_EQ(parts_of(1, most + 2),
            (Parts{{0, most / 2 + 1}, {most / 2 + 1, most + 2}}));
  EXPECT_EQ(parts_of(2 * work + 1, 8), (Parts{{0, 2}, {2, 5}, {5, 8}}));
  EXPECT_EQ(parts_of(9 * work, 2), (Parts{{0, 1}, {1, 2}}));
  EXPECT_EQ(parts_of(1, most / 2, 2), (Parts{{0, most / 2}}));
  EXPECT_EQ(parts_of(1, 4, most / 2), (Parts{{0, 2}, {2, 4}}));
  torch::Tensor i = torch::arange(1000, torch::kInt),
                expected = torch::where(i < 900, 1 + 12 * i, 1);
  EXPECT_TRUE(torch::equal(y_.cpu(), expected));
}

TEST_F(MetalTest, NumWavesDependsOnRegistersAndThreadgroupMemory) {
  const uint32_t cores = mps::NumCores();
  auto waves = [&](const char *kernel, uint32_t threadgroups,
                   uint32_t threads = 128) {
    return mps::NumWaves("metal_test", kernel, x_, {threadgroups, threads});
  };
  // A core has registers for three threadgroups of 128 threads, or twelve of 32
  // threads.  A core has threadgroup memory for two threadgroups of
  // much_memory.
  EXPECT_EQ(waves("few_threads", 1), 1);
  EXPECT_EQ(waves("few_threads", 3 * cores), 1);
  EXPECT_EQ(waves("few_threads", 3 * cores + 1), 2);
  EXPECT_EQ(waves("few_threads", 12 * cores, 32), 1);
  EXPECT_EQ(waves("few_threads", 12 * cores + 1, 32), 2);
  EXPECT_EQ(waves("much_memory", 2 * cores), 1);
  EXPECT_EQ(waves("much_memory", 2 * cores + 1), 2);
  EXPECT_EQ(waves("much_memory", 20 * cores), 10);
}

TEST_F(MetalTest, LaunchThrowsIfTheKernelCannotRun) {
  const mps::Arguments arguments = {mps::Out(kX, x_)};
  EXPECT_THROW(mps::Launch("metal_test", "no_such", {1, 1}, arguments),
               std::exception);
  EXPECT_THROW(mps::Launch("metal_test_broken", "f", {1, 1}, arguments),
               std::exception);
  EXPECT_THROW(mps::Launch("metal_test", "few_threads", {1, 1},
                           mps::Join(arguments, arguments)),
               std::exception);
  EXPECT_THROW(AddScaled(2, {1, 1 << 20}), std::exception);
  x_ = x_.cpu();
  EXPECT_THROW(AddScaled(2, {4, 256}), std::exception);
}

TEST_F(MetalTest, MaxThreadsPerThreadgroupIsFrom32To1024) {
  const uint32_t most =
      mps::MaxThreadsPerThreadgroup("metal_test", "add_scaled", x_);
  EXPECT_GE(most, 32u);
  EXPECT_LE(most, 1024u);
  EXPECT_GE(mps::NumCores(), 1u);
}

#else

TEST(MetalTest, Nothing) { GTEST_SKIP() << "k2 is built without mps."; }

#endif  // K2_WITH_MPS

}  // namespace k2
