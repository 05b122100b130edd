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

#include <vector>

#include "gtest/gtest.h"
#include "k2/csrc/array.h"
#include "k2/csrc/pytorch_context.h"
#include "k2/csrc/tensor.h"
#include "k2/csrc/test_utils.h"

namespace k2 {

// Returns a tensor that does not begin where its region begins.
static Tensor Inner(ContextPtr c) {
  Array1<int32_t> array(c, std::vector<int32_t>{10, 11, 12, 13, 14, 15});
  return Tensor(kInt32Dtype, Shape(std::vector<int32_t>{3}), array.GetRegion(),
                2 * sizeof(int32_t));
}

static std::vector<int32_t> Elements(const Tensor &tensor) {
  const int32_t *data = tensor.Data<int32_t>();
  return std::vector<int32_t>(data, data + tensor.NumElements());
}

TEST(Tensor, CopiesBeginWithTheFirstElement) {
  const std::vector<int32_t> expected = {12, 13, 14};
  ContextPtr cpu = GetCpuContext();
  for (const ContextPtr &c : {cpu, GetCudaContext()}) {
    Tensor inner = Inner(c);
    EXPECT_EQ(Elements(inner.To(cpu)), expected);
    EXPECT_EQ(Elements(inner.Clone().To(cpu)), expected);
  }
}

TEST(Tensor, TheRegionOfASliceEndsWithItsStorage) {
  torch::Tensor tensor = torch::arange(6, torch::kInt);
  RegionPtr region = NewRegion(tensor.slice(0, 2));
  EXPECT_EQ(region->num_bytes, 4 * sizeof(int32_t));
}

}  // namespace k2
