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

#include <algorithm>
#include <vector>

#include "k2/csrc/array.h"
#include "k2/csrc/array_ops.h"
#include "k2/csrc/fsa.h"
#include "k2/csrc/macros.h"
#include "k2/csrc/mps/mps_context.h"
#include "k2/csrc/ragged.h"
#include "k2/csrc/tensor.h"
#include "k2/csrc/test_utils.h"
#include "k2/csrc/torch_util.h"

namespace k2 {

// A function of its own, because nvcc takes no lambda of K2_EVAL in a private
// function such as the body of a test.
static void Twice(ContextPtr c, Array1<int32_t> *array) {
  int32_t *data = array->Data();
  K2_EVAL(
      c, array->Dim(), lambda_twice, (int32_t i)->void { data[i] *= 2; });
}

class MpsContextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasMps()) GTEST_SKIP() << "There is no mps device.";
    mps_ = GetMpsContext();
  }

  ContextPtr cpu_ = GetCpuContext();
  ContextPtr mps_;
};

TEST_F(MpsContextTest, ThereIsOneMpsDevice) {
  EXPECT_EQ(mps_->GetDeviceType(), kMps);
  EXPECT_EQ(mps_->GetDeviceId(), 0);
  EXPECT_TRUE(mps_->IsCompatible(*GetMpsContext()));
  EXPECT_FALSE(mps_->IsCompatible(*cpu_));
  EXPECT_FALSE(cpu_->IsCompatible(*mps_));
  EXPECT_TRUE(mps_->OnHost());
  EXPECT_TRUE(mps_->SyncIfOnHost());
  EXPECT_EQ(GetContext(torch::Device(kTorchMps, 0)).get(), mps_.get());
}

TEST_F(MpsContextTest, TheHostReadsAndWritesInPlace) {
  std::vector<int32_t> values = {3, 1, 4, 1, 5};
  Array1<int32_t> array(mps_, values);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), array.Data()));
  Twice(mps_, &array);
  CheckArrayData(array, {6, 2, 8, 2, 10});
  EXPECT_EQ(array[2], 8);
}

TEST_F(MpsContextTest, AllocationOfZeroBytesIsNullptr) {
  void *deleter_context = &mps_;
  EXPECT_EQ(mps_->Allocate(0, &deleter_context), nullptr);
  EXPECT_EQ(deleter_context, nullptr);
  Array1<float> empty(mps_, 0);
  EXPECT_EQ(ToTorch(empty).numel(), 0);
  EXPECT_TRUE(IsMps(ToTorch(empty).device()));
}

TEST_F(MpsContextTest, ArraysAreCopiedToMpsAndBack) {
  Array1<int32_t> array(cpu_, std::vector<int32_t>{1, 2, 3});
  Array1<int32_t> there = array.To(mps_), again = there.Clone(),
                  back = again.To(cpu_);
  EXPECT_EQ(there.Context()->GetDeviceType(), kMps);
  EXPECT_NE(there.Data(), again.Data());
  CheckArrayData(back, {1, 2, 3});
}

TEST_F(MpsContextTest, ATensorSharesTheMemoryOfAnArray) {
  torch::Tensor tensor;
  {
    Array1<float> array(mps_, std::vector<float>{1, 2, 3, 4});
    Array1<float> part = array.Arange(1, 3);
    tensor = ToTorch(part);
    array.Data()[2] = 7;
  }
  // The array is gone, and the tensor keeps the memory alive.
  EXPECT_TRUE(IsMps(tensor.device()));
  EXPECT_TRUE(torch::equal(tensor.cpu(), torch::tensor({2.0f, 7.0f})));

  tensor.mul_(2);
  Array1<float> array = FromTorch<float>(tensor);
  array.Context()->Sync();
  EXPECT_EQ(array.Data()[0], 4);
  EXPECT_EQ(array.Data()[1], 14);
}

TEST_F(MpsContextTest, ToTorchKeepsTheShapeOfAnArray) {
  Array2<int32_t> array(mps_, 2, 3);
  array = 5;
  torch::Tensor tensor = ToTorch(array);
  EXPECT_EQ(tensor.sizes(), torch::IntArrayRef({2, 3}));
  EXPECT_TRUE(torch::equal(tensor.cpu(), torch::full({2, 3}, 5, torch::kInt)));

  Array1<Arc> arcs(mps_, std::vector<Arc>{{0, 1, 2, 0.5f}, {1, 2, -1, 0.0f}});
  tensor = ToTorch(arcs);
  EXPECT_EQ(tensor.sizes(), torch::IntArrayRef({2, 4}));
  EXPECT_EQ(tensor.cpu()[1][2].item<int32_t>(), -1);
  EXPECT_EQ(FromTorch<Arc>(tensor).Data(), arcs.Data());
}

TEST_F(MpsContextTest, ToTorchReturnsDoublesOnTheCpuWithoutACopy) {
  Array1<double> array(mps_, std::vector<double>{0.1, 0.2});
  torch::Tensor tensor = ToTorch(array);
  EXPECT_EQ(tensor.device().type(), torch::kCPU);
  EXPECT_EQ(tensor.data_ptr<double>(), array.Data());
}

TEST_F(MpsContextTest, EvalPtrWaitsForTheGpu) {
  torch::Tensor tensor =
      torch::full({1 << 20}, 3, torch::device(kTorchMps).dtype(torch::kInt));
  const int32_t *data = EvalPtr<int32_t>(tensor);
  EXPECT_EQ(data[0], 3);
  EXPECT_EQ(data[(1 << 20) - 1], 3);
}

}  // namespace k2
