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

#include "k2/csrc/log.h"
#include "k2/csrc/mps/mps_context.h"

namespace k2 {

ContextPtr GetMpsContext() {
  K2_LOG(FATAL) << "k2 was not built with MPS. Please build it with "
                   "-DK2_WITH_MPS=ON on an Apple device.";
  return nullptr;
}

// The way to any of the following leads through GetMpsContext().

RegionPtr NewMpsRegion(const torch::Tensor &) {
  GetMpsContext();
  return nullptr;
}

torch::Tensor MpsToTorch(const RegionPtr &, const void *, torch::IntArrayRef,
                         torch::IntArrayRef, torch::ScalarType) {
  GetMpsContext();
  return {};
}

torch::Tensor MpsReinterpret(const torch::Tensor &, torch::ScalarType) {
  GetMpsContext();
  return {};
}

void *MpsHostPtr(const torch::Tensor &, torch::ScalarType) {
  GetMpsContext();
  return nullptr;
}

}  // namespace k2
