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

#include "k2/csrc/mps/placement.h"

#include <cstdlib>
#include <string>

#include "torch/all.h"

namespace k2 {
namespace mps {

bool PreferMetal(double host_time, double metal_time) {
  const char *value = std::getenv("K2_MPS_FORCE");
  const std::string force = value == nullptr ? "" : value;
  if (force.empty()) return metal_time < host_time;
  TORCH_CHECK(force == "host" || force == "metal",
              "The environment variable K2_MPS_FORCE may be `host` or `metal`. "
              "Given: ",
              force);
  return force == "metal";
}

}  // namespace mps
}  // namespace k2
