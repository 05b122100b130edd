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
#include <string>

#include "k2/csrc/array_ops.h"
#include "k2/csrc/check_indexes.h"
#include "k2/csrc/device_guard.h"
#include "k2/csrc/eval.h"
#include "k2/csrc/macros.h"

namespace k2 {

void ThrowOutOfRange(int32_t index, int32_t size) {
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
    // A compiler vectorizes the first loop, because no exception leaves it, and
    // because `wrong` is as wide as an index.
    int32_t wrong = 0;
    for (int32_t i = 0; i < dim; ++i)
      wrong |= (data[i] < first) | (data[i] >= size);
    for (int32_t i = 0; i < dim && wrong; ++i)
      CheckIndex(data[i], size, first);
    return;
  }
  DeviceGuard guard(c);
  K2_EVAL(
      c, dim, lambda_check_index, (int32_t i)->void {
        CheckIndex(data[i], size, first);
      });
}

int32_t CheckLayer(const Array1<int32_t> *row_splits,
                   const Array1<int32_t> *row_ids, int32_t size) {
  if (row_splits != nullptr && row_splits->Dim() == 0)
    throw std::invalid_argument("row_splits must not be empty");
  if (row_ids != nullptr) {
    int32_t num_rows = 0;
    if (row_splits != nullptr)
      num_rows = row_splits->Dim() - 1;
    else if (row_ids->Dim() != 0)
      num_rows = row_ids->Back() + 1;
    CheckIndexes(*row_ids, num_rows, 0);
  }
  if (size == -1)
    size = row_ids != nullptr ? row_ids->Dim() : row_splits->Back();
  if (row_splits != nullptr) CheckIndexes(*row_splits, size + 1, 0);
  const Array1<int32_t> *either = row_splits != nullptr ? row_splits : row_ids;
  if (either->Context()->GetDeviceType() != kCpu) return size;
  if (row_splits != nullptr &&
      (!ValidateRowSplits(*row_splits) || row_splits->Back() != size)) {
    throw std::invalid_argument(
        "row_splits must begin with 0, not decrease, and end with " +
        std::to_string(size));
  }
  if (row_ids != nullptr && !ValidateRowIds(*row_ids))
    throw std::invalid_argument("row_ids must not decrease");
  if (row_splits != nullptr && row_ids != nullptr &&
      !ValidateRowSplitsAndIds(*row_splits, *row_ids))
    throw std::invalid_argument("row_splits and row_ids must agree");
  return size;
}

int32_t PythonIndex(int32_t index, int32_t size) {
  if (index < -size || index >= size) ThrowOutOfRange(index, size);
  return index < 0 ? index + size : index;
}

}  // namespace k2
