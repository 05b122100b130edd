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

#include <sstream>
#include <stdexcept>

#include "k2/csrc/check_indexes.h"
#include "k2/csrc/eval.h"
#include "k2/csrc/macros.h"

namespace k2 {

static void ThrowOutOfRange(int32_t index, int32_t size) {
  std::ostringstream os;
  os << "index " << index << " is out of range for size " << size;
  throw std::out_of_range(os.str());
}

void CheckIndexes(const Array1<int32_t> &indexes, int32_t size,
                  int32_t first) {
  ContextPtr c = indexes.Context();
  int32_t dim = indexes.Dim();
  const int32_t *data = indexes.Data();
  if (c->GetDeviceType() == kCpu) {
    for (int32_t i = 0; i < dim; ++i)
      if (data[i] < first || data[i] >= size) ThrowOutOfRange(data[i], size);
    return;
  }
  K2_EVAL(
      c, dim, lambda_check_index, (int32_t i)->void {
        K2_CHECK(data[i] >= first && data[i] < size)
            << "index " << data[i] << " is out of range for size " << size;
      });
}

int32_t PythonIndex(int32_t index, int32_t size) {
  if (index < -size || index >= size) ThrowOutOfRange(index, size);
  return index < 0 ? index + size : index;
}

}  // namespace k2
