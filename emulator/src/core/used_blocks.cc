// Implements UsedBlocks and HostSnapshot.
#include <algorithm>
#include <string>
#include <vector>

#include "core/blocks.h"
#include "core/fatal.h"

namespace mps_emulator {

bool IsAlive(const BufferUse &use) {
  Memory::Locked memory;
  return use.block->is_owned && use.block->owner_id == use.buffer_id;
}

bool ChecksCommands() { return Memory::Get().checks_commands; }

void HostSnapshot::Take(const std::vector<BufferUse> &uses) {
  Memory::Locked memory;
  for (const BufferUse &use : uses) {
    const Block *block = use.block;
    if (block->host_user != use.buffer_id) continue;
    const bool is_taken = std::any_of(
        contents_.begin(), contents_.end(), [&](const Contents &taken) {
          return taken.use.buffer_id == use.buffer_id;
        });
    if (!is_taken)
      contents_.push_back({use, std::string(block->host, use.size)});
  }
}

std::vector<HostSnapshot::Write> HostSnapshot::Writes() const {
  Memory::Locked memory;
  std::vector<Write> writes;
  for (const Contents &contents : contents_) {
    const Block *block = contents.use.block;
    if (block->host_user != contents.use.buffer_id) continue;
    const char *before = contents.bytes.data();
    for (size_t i = 0; i < contents.bytes.size(); ++i) {
      if (block->host[i] == before[i]) continue;
      if (!writes.empty() && writes.back().end == i &&
          writes.back().buffer_id == contents.use.buffer_id)
        ++writes.back().end;
      else
        writes.push_back({contents.use.buffer_id, i, i + 1});
    }
  }
  return writes;
}

namespace {

// How many uses of a block are remembered.  A block can have more uses if the
// program seldom waits.  Then the oldest uses are forgotten.
constexpr size_t kMostPast = 64;

void Join(UsedBlocks::VectorClock *order,
          const UsedBlocks::VectorClock &other) {
  for (const auto &[queue, done] : other) {
    uint64_t &own = (*order)[queue];
    own = std::max(own, done);
  }
}

bool Has(const UsedBlocks::VectorClock &order, const Block::Past &past) {
  auto found = order.find(past.queue);
  return found != order.end() && past.done <= found->second;
}

}  // namespace

Accesses AccessesOf(const BufferUse &use) {
  const ByteRange bytes = {use.bytes.begin, std::min(use.bytes.end, use.size)};
  Accesses accesses;
  if (bytes.begin < bytes.end)
    (use.writes ? accesses.writes : accesses.reads).push_back(bytes);
  return accesses;
}

UsedBlocks::VectorClock UsedBlocks::Done() const {
  Memory::Locked memory;
  VectorClock done = ordered_after_;
  done[number_] = done_;
  return done;
}

void UsedBlocks::OrderAfter(const VectorClock &ended) {
  Memory::Locked memory;
  Join(&ordered_after_, ended);
}

void UsedBlocks::NoteAllEnded() {
  const VectorClock done = Done();
  Memory::Locked memory;
  if (memory->checks_commands) Join(&memory->known_ended, done);
}

UsedBlocks::VectorClock UsedBlocks::KnownEnded() {
  return Memory::Locked()->known_ended;
}

void UsedBlocks::NoteCommit() { ++Memory::Locked()->committed; }

void UsedBlocks::NoteRun() { --Memory::Locked()->committed; }

// torch reuses a freed block at once, so two commands that use one block may
// use different buffers.
void UsedBlocks::NoteAccesses(const BufferUse &use, Accesses accesses) {
  Memory::Locked memory;
  if (!memory->checks_commands) return;
  Block *block = use.block;
  ++done_;
  for (const Block::Past &past : block->past) {
    if (past.queue == number_ || Has(ordered_after_, past)) continue;
    const bool reused = past.buffer_id != use.buffer_id;
    if (reused && block->origin != Origin::kTorch) continue;
    const auto conflict = FindConflict(past.accesses, accesses);
    if (!conflict) continue;
    if (reused)
      Fatal(
          "a race between two command queues on the memory of a freed tensor: "
          "%s on queue \"%s\" uses it as MTLBuffer #%lu, %s on queue \"%s\" as "
          "MTLBuffer #%lu (%zu bytes), and nothing orders the two.  Keep a "
          "tensor until a wait or an MTLEvent shows that its commands have "
          "ended",
          past.command.c_str(), past.queue_label.c_str(), past.buffer_id,
          command_, label_->c_str(), use.buffer_id, use.size);
    Fatal(
        "a race between two command queues on MTLBuffer #%lu (%zu bytes), at "
        "byte %zu: %s on queue \"%s\" %s it, %s on queue \"%s\" %s it, and "
        "nothing orders the two: on a Mac they may run at the same time, or in "
        "the other order.  Commit the first (torch's stream: "
        "torch::mps::commit()) and wait for it before the second, or let the "
        "second wait for an MTLEvent that the first signals",
        use.buffer_id, use.size, conflict->byte, past.command.c_str(),
        past.queue_label.c_str(), conflict->first_writes ? "writes" : "reads",
        command_, label_->c_str(),
        conflict->second_writes ? "writes" : "reads");
  }
  std::erase_if(block->past, [&](const Block::Past &past) {
    return past.queue == number_ && past.buffer_id == use.buffer_id &&
           Covers(accesses, past.accesses);
  });
  if (block->past.size() == kMostPast) block->past.erase(block->past.begin());
  block->past.push_back(
      {number_, done_, use.buffer_id, std::move(accesses), command_, *label_});
}

void UsedBlocks::NoteUse(const BufferUse &use) {
  Block *block = use.block;
  if (use.writes) block->unpublished_results = true;
  block->last_use_id = use.buffer_id;
  if (block->listed_in == this) return;
  block->listed_in = this;
  ++block->listings;
  blocks_.push_back(block);
}

void UsedBlocks::NoteOperator(const BufferUse &use) {
  Memory::Locked memory;
  Block *block = use.block;
  ByteRange &all = block->operator_bytes;
  if (block->operator_user != use.buffer_id) {
    block->operator_user = use.buffer_id;
    all = use.bytes;
  } else {
    all = {std::min(all.begin, use.bytes.begin),
           std::max(all.end, use.bytes.end)};
  }
}

void UsedBlocks::BeginBatch() { Memory::Locked()->BeginBatch(); }

char *UsedBlocks::Begin(const BufferUse &use, bool overwrites_all) {
  Memory::Locked memory;
  char *device =
      memory->Begin(use.block, use.buffer_id, use.size, overwrites_all);
  NoteUse(use);
  return device;
}

char *UsedBlocks::UseNow(Buffer *buffer, bool writes, bool overwrites_all,
                         ByteRange bytes) {
  const BufferUse use = {buffer->block, buffer->id,        buffer->size,
                         writes,        buffer->untracked, bytes};
  char *device = Begin(use, overwrites_all);
  NoteAccesses(use, AccessesOf(use));
  NoteOperator(use);
  return device;
}

void UsedBlocks::Publish() {
  NoteAllEnded();
  Memory::Locked memory;
  Upkeep upkeep;
  for (Block *block : blocks_) {
    memory->Publish(block);
    if (--block->listings == 0) block->operator_user = 0;
    if (block->listed_in == this) block->listed_in = nullptr;
    // If no committed command buffer is left to run, all later commands are
    // ordered after the uses that the program knows to have ended.
    if (memory->committed == 0)
      std::erase_if(block->past, [&](const Block::Past &past) {
        return Has(memory->known_ended, past);
      });
  }
  blocks_.clear();
}

}  // namespace mps_emulator
