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

#ifndef K2_CSRC_CHECK_INDEXES_H_
#define K2_CSRC_CHECK_INDEXES_H_

#include "k2/csrc/array.h"
#include "k2/csrc/log.h"

namespace k2 {

// Throws std::out_of_range, which becomes Python's IndexError.  The message
// names the index and the size.
void ThrowOutOfRange(int32_t index, int32_t size);

/* Checks one index, in the loop that reads it, as CheckIndexes() does. */
__host__ __device__ __forceinline__ void CheckIndex(int32_t index, int32_t size,
                                                    int32_t first) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  K2_CHECK(index >= first && index < size)
      << "index " << index << " is out of range for size " << size;
#else
  if (index < first || index >= size) ThrowOutOfRange(index, size);
#endif
}

/* Checks that indexes are within [first, size).  With other indexes, a kernel
   would read memory outside of the array that is indexed.

   If the indexes are on the CPU, throws std::out_of_range, Python's IndexError,
   with the first wrong index and the size.  If the indexes are on a GPU, the
   host does not wait for the GPU.  Instead, K2_CHECK() in a kernel prints the
   same text and stops the GPU's work, and CUDA reports the error at the next
   wait.

     @param [in] indexes  The indexes to check.
     @param [in] size     The size of the axis to which the indexes belong.
     @param [in] first    The lowest valid index: -1 if -1 means no element,
                          else 0.
 */
void CheckIndexes(const Array1<int32_t> &indexes, int32_t size, int32_t first);

/* Checks the row splits, the row ids, or both, of one layer of a RaggedShape.

   Row splits must begin with 0, must not decrease, and must end with the number
   of elements.  Row ids must not decrease, and must agree with the row splits.
   If arrays on the CPU break these rules, throws std::invalid_argument,
   Python's ValueError.  For arrays on a GPU, these checks would have to wait
   for the GPU.  Instead, CheckIndexes() checks that every row split and row id
   is within the layer.

     @param [in] row_splits  The row splits, or nullptr.
     @param [in] row_ids     The row ids, or nullptr.
     @param [in] size        The number of elements, or -1 to take the number
                             from the arrays.
     @return  The number of elements. */
int32_t CheckLayer(const Array1<int32_t> *row_splits,
                   const Array1<int32_t> *row_ids, int32_t size);

/* Converts an index of Python, from -size to size - 1, to an index from 0 to
   size - 1.  Throws std::out_of_range for any other index. */
int32_t PythonIndex(int32_t index, int32_t size);

}  // namespace k2

#endif  // K2_CSRC_CHECK_INDEXES_H_
