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

#ifndef K2_CSRC_MPS_HOST_MEMORY_H_
#define K2_CSRC_MPS_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "c10/core/Storage.h"
#include "torch/all.h"

// Memory on mps that the host may write without a wait.
//
// torch gives freed memory to the next tensor while queued work of the GPU may
// still use the memory.  So the host must wait before it writes to new memory
// of torch.  k2 keeps some blocks of torch's memory, and knows which blocks are
// idle: the GPU has no work that uses an idle block.
//
// - A block that a wait has covered is idle, until k2 makes a tensor of it,
//   because the GPU uses a block only through a tensor.
// - If an idle block is freed, k2 can use it again at once.
// - If a block that is not idle is freed, all work that uses the block is
//   already in the queue.  So the block becomes idle with the next wait of k2
//   that begins after this.
//
// k2 keeps at most 96 MiB.  torch.mps.empty_cache() does not free these blocks,
// because torch tells nobody of this call.

namespace k2 {
namespace mps {

/* Returns a storage on mps, of `bytes` > 0 bytes, that the host may write at
   once.  Waits for the GPU if k2 has no idle block of this size. */
c10::Storage NewHostStorage(size_t bytes);

/* Returns a copy of a tensor on the CPU, in memory on mps.  Unlike a copy by
   torch, the call seldom waits for the GPU.

   @param [in] tensor   On the CPU, of a type that mps has.
   @return   A contiguous tensor, detached from the autograd graph.
 */
torch::Tensor CopyToMps(const torch::Tensor &tensor);

/* Called when a tensor is made of `storage`: the storage's memory is not idle
   any more. */
void NoteTensor(const c10::Storage &storage);

/* Returns true if `data` is an address in an idle block, or nullptr. */
bool IsIdle(const void *data);

/* Returns how many blocks were freed so far while they were not idle. */
uint64_t NumFreed();

/* Called after a wait for the GPU that began after NumFreed() returned
   `num_freed`.  Makes the blocks idle that NumFreed() had counted, and gives
   surplus blocks back to torch. */
void Recycle(uint64_t num_freed);

#if !K2_WITH_MPS

inline bool IsIdle(const void *) { return false; }

#endif  // !K2_WITH_MPS

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_HOST_MEMORY_H_
