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

namespace k2 {

/* Requires indexes that exist: for others, a kernel would read other memory.

   Where the host has the indexes, it throws std::out_of_range, Python's
   IndexError, which names the first wrong index and the size.  The host does
   not wait for a GPU: on a GPU, K2_CHECK() in a kernel prints the same and
   stops the work, and CUDA reports it at the next wait.

     @param [in] indexes  Any indexes.
     @param [in] size     The size of the axis that they are for.
     @param [in] first    The lowest index: -1, if -1 stands for no element,
                          or 0.
 */
void CheckIndexes(const Array1<int32_t> &indexes, int32_t size, int32_t first);

/* Requires valid row splits, row ids, or both, of one layer of a RaggedShape.

   The host checks what it has, and throws std::invalid_argument, Python's
   ValueError, for row splits that do not begin with 0 or that decrease, and
   for row ids that decrease or do not agree with the row splits.  On a GPU,
   where that would wait, CheckIndexes() checks that nothing outside of the
   layer is read.

     @param [in] row_splits  The row splits, or nullptr.
     @param [in] row_ids     The row ids, or nullptr.
     @param [in] size        The number of elements, or -1 to take it from
                             the arrays.
     @return  The number of elements. */
int32_t CheckLayer(const Array1<int32_t> *row_splits,
                   const Array1<int32_t> *row_ids, int32_t size);

/* Returns an index from 0 on for an index as Python takes it: from -size to
   size - 1.  Throws std::out_of_range for any other. */
int32_t PythonIndex(int32_t index, int32_t size);

}  // namespace k2

#endif  // K2_CSRC_CHECK_INDEXES_H_
