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

#include "k2/csrc/mps/host_memory.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>  // NOLINT
#include <utility>
#include <vector>

#include "ATen/detail/MPSHooksInterface.h"
#include "k2/csrc/log.h"
#include "k2/csrc/mps/buffer.h"
#include "k2/csrc/mps/stream.h"

namespace k2 {
namespace mps {

// The sizes of blocks are powers of two.  A storage that is larger than the
// largest block comes from torch.
constexpr int32_t kMinLog2 = 8;
constexpr int32_t kMaxLog2 = 22;
constexpr int32_t kNumSizes = kMaxLog2 - kMinLog2 + 1;

// How much k2 keeps of each size.  Three graphs may need a block of the same
// size at once, even a large one: the graph in use, a freed graph whose kernels
// have not run yet, and the next graph.
constexpr size_t kMostBytes = 8 << 20;
constexpr size_t kMostBlocks = 1024;
constexpr size_t kMostLargeBlocks = 4;

// The number of blocks that k2 makes when it first needs a size.  Whenever no
// block of the size is left, k2 doubles the number, so that waits for new
// blocks become rare.  But k2 adds at most kMostAddedBytes at a time, or one
// block if a block is larger.
constexpr size_t kFirstBlocks = 8;
constexpr size_t kMostAddedBytes = 1 << 20;

struct Block {
  c10::DataPtr memory;  // torch's
  const char *address;  // the host's address of the memory
  int32_t size;         // the number of the size
  // Whether a tensor was made of the block since the block was last taken.
  std::atomic<bool> has_tensor{false};
};

namespace {

struct Pool {
  std::mutex mutex;
  std::map<const char *, std::unique_ptr<Block>> blocks;  // by address
  size_t num_blocks[kNumSizes] = {};
  std::vector<Block *> idle[kNumSizes];
  // Whether this process is a child of fork().
  bool is_forked = false;
  // Freed blocks that are not idle, in the order in which they were freed.
  std::deque<Block *> freed;
  // How many blocks have come to `freed`, and how many of them have left.
  std::atomic<uint64_t> num_freed{0};
  std::atomic<uint64_t> num_recycled{0};
};

Pool &GetPool() {
  // The pool is never destroyed, because Regions may outlive static objects.
  static auto *pool = new Pool;
  // A child of fork() may free memory.  If another thread of the parent held
  // the lock during fork(), the lock would stay locked in the child.  So fork()
  // takes place under the lock.  A storage that is larger than all blocks comes
  // from torch's allocator.  This code does not guard the lock of the
  // allocator, which another thread might hold.
  static const int noted =
      pthread_atfork([]() { pool->mutex.lock(); },
                     []() { pool->mutex.unlock(); },
                     []() {
                       pool->is_forked = true;
                       pool->mutex.unlock();
                     });
  static_cast<void>(noted);
  return *pool;
}

size_t BytesOf(int32_t size) { return size_t{1} << (size + kMinLog2); }

size_t MostBlocks(int32_t size) {
  return std::max(std::min(kMostBytes / BytesOf(size), kMostBlocks),
                  kMostLargeBlocks);
}

at::Allocator *TorchAllocator() {
  return at::detail::getMPSHooks().getMPSDeviceAllocator();
}

// Keeps an idle block for the next storage.  If there are enough blocks of the
// size, forgets the block, and returns it for the caller to delete.  The caller
// must hold the lock now, but not when it deletes the block, because torch's
// allocator has locks too.
std::unique_ptr<Block> Keep(Pool *pool, Block *block) {
  if (pool->num_blocks[block->size] <= MostBlocks(block->size)) {
    pool->idle[block->size].push_back(block);
    return nullptr;
  }
  --pool->num_blocks[block->size];
  auto found = pool->blocks.find(block->address);
  std::unique_ptr<Block> ans = std::move(found->second);
  pool->blocks.erase(found);
  return ans;
}

// The deleter of a storage.  Any thread may drop the last owner of a storage.
void Free(void *context) {
  auto *block = static_cast<Block *>(context);
  Pool &pool = GetPool();
  std::unique_ptr<Block> surplus;
  std::lock_guard<std::mutex> lock(pool.mutex);
  if (block->has_tensor) {
    pool.freed.push_back(block);
    ++pool.num_freed;
  } else {
    surplus = Keep(&pool, block);
    // Another thread of the parent might hold the lock of torch's allocator for
    // ever.  So a child does not give the block back.
    if (pool.is_forked) surplus.release();
  }
}

Block *TakeIdle(int32_t size) {
  Pool &pool = GetPool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  std::vector<Block *> &idle = pool.idle[size];
  if (idle.empty()) return nullptr;
  Block *ans = idle.back();
  idle.pop_back();
  return ans;
}

// Makes new blocks, waits, and returns one of them.
Block *AddBlocks(int32_t size) {
  Pool &pool = GetPool();
  size_t num_blocks;
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    size_t now = pool.num_blocks[size], most = MostBlocks(size);
    num_blocks =
        now >= most ? 1 : std::min(std::max(now, kFirstBlocks), most - now);
    num_blocks = std::min(num_blocks,
                          std::max(kMostAddedBytes / BytesOf(size), size_t{1}));
  }
  std::vector<std::unique_ptr<Block>> added;
  for (size_t i = 0; i < num_blocks; ++i) {
    auto block = std::make_unique<Block>();
    block->memory = TorchAllocator()->allocate(BytesOf(size));
    block->size = size;
    // ContentsOf() needs a storage.  This one does not own the memory.
    c10::Storage view(c10::Storage::use_byte_size_t(), BytesOf(size),
                      c10::DataPtr(block->memory.get(), block->memory.device()),
                      /*allocator*/ nullptr, /*resizable*/ false);
    block->address = static_cast<const char *>(ContentsOf(view));
    K2_CHECK(block->address != nullptr)
        << "The host cannot read memory of torch's allocator for mps.";
    added.push_back(std::move(block));
  }
  // Pending work of the GPU may still use this memory of torch.
  SynchronizeNow();
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.num_blocks[size] += num_blocks;
  for (std::unique_ptr<Block> &block : added) {
    pool.idle[size].push_back(block.get());
    pool.blocks[block->address] = std::move(block);
  }
  Block *ans = pool.idle[size].back();
  pool.idle[size].pop_back();
  return ans;
}

}  // namespace

c10::Storage NewHostStorage(size_t bytes) {
  RefuseFork();
  int32_t size = 0;
  while (size < kNumSizes && BytesOf(size) < bytes) ++size;
  if (size == kNumSizes) {
    c10::Storage ans(c10::Storage::use_byte_size_t(), bytes,
                     TorchAllocator()->allocate(bytes), TorchAllocator(),
                     /*resizable*/ false);
    SynchronizeNow();
    return ans;
  }
  Block *block = TakeIdle(size);
  if (block == nullptr) block = AddBlocks(size);
  return c10::Storage(
      c10::Storage::use_byte_size_t(), bytes,
      c10::DataPtr(block->memory.get(), block, &Free, block->memory.device()),
      /*allocator*/ nullptr, /*resizable*/ false);
}

void NoteTensor(const c10::Storage &storage) {
  const c10::DataPtr &data = storage.data_ptr();
  if (data.get_deleter() == &Free)
    static_cast<Block *>(data.get_context())->has_tensor = true;
}

bool IsIdle(const void *data) {
  if (data == nullptr) return true;
  RefuseFork();
  auto *address = static_cast<const char *>(data);
  Pool &pool = GetPool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  auto next = pool.blocks.upper_bound(address);
  if (next == pool.blocks.begin()) return false;
  const Block &block = *std::prev(next)->second;
  return address < block.address + BytesOf(block.size) && !block.has_tensor;
}

uint64_t NumFreed() { return GetPool().num_freed; }

void Recycle(uint64_t num_freed) {
  Pool &pool = GetPool();
  if (pool.num_recycled >= num_freed) return;
  std::vector<std::unique_ptr<Block>> surplus;
  std::lock_guard<std::mutex> lock(pool.mutex);
  for (; pool.num_recycled < num_freed; ++pool.num_recycled) {
    Block *block = pool.freed.front();
    pool.freed.pop_front();
    block->has_tensor = false;
    if (auto unneeded = Keep(&pool, block))
      surplus.push_back(std::move(unneeded));
  }
}

}  // namespace mps
}  // namespace k2
