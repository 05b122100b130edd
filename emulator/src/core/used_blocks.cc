// The blocks that commands use, and the order of these commands.
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
    bool is_known = false;
    for (const Contents &known : contents_)
      is_known = is_known || known.use.buffer_id == use.buffer_id;
    if (!is_known)
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

void UsedBlocks::OrderAfter(const UsedBlocks *other, uint64_t done) {
  uint64_t &known = ordered_after_[other];
  known = std::max(known, done);
}

// Ends the program if a command of another queue has used the block, one of the
// two commands writes, and the program has not ordered them.  torch gives out
// a freed block at once, so the two commands may have different buffers.
void UsedBlocks::CheckOrder(const BufferUse &use) {
  Block *block = use.block;
  ++done_;
  for (const Block::LastUse *last :
       {&block->last_write, &block->committed_write, &block->last_read,
        &block->committed_read}) {
    const bool wrote =
        last == &block->last_write || last == &block->committed_write;
    if (!wrote && !use.writes) continue;
    if (last->by == nullptr || last->by == this ||
        last->done <= last->by->known_)
      continue;
    const bool reused = last->buffer_id != use.buffer_id;
    if (reused && block->origin != Origin::kTorch) continue;
    auto ordered = ordered_after_.find(last->by);
    if (ordered != ordered_after_.end() && last->done <= ordered->second)
      continue;
    if (reused)
      Fatal(
          "a race between two command queues on the memory of a freed tensor: "
          "%s on queue \"%s\" uses it as MTLBuffer #%lu, %s on queue \"%s\" as "
          "MTLBuffer #%lu (%zu bytes), and nothing orders the two.  Keep the "
          "tensor until a wait or an MTLEvent has told that the first command "
          "has ended",
          last->command.c_str(), last->by->label_->c_str(), last->buffer_id,
          command_, label_->c_str(), use.buffer_id, use.size);
    Fatal(
        "a race between two command queues on MTLBuffer #%lu (%zu bytes): %s "
        "on queue \"%s\" %s it, %s on queue \"%s\" %s it, and nothing orders "
        "the two: on a Mac they run at the same time, or in the other order.  "
        "Commit the first (torch's stream: torch::mps::commit()) and wait for "
        "it, or let the second wait for an MTLEvent that the first signals",
        use.buffer_id, use.size, last->command.c_str(),
        last->by->label_->c_str(), wrote ? "writes" : "reads", command_,
        label_->c_str(), use.writes ? "writes" : "reads");
  }
  (use.writes ? block->last_write : block->last_read) = {
      this, done_, use.buffer_id, command_};
}

void UsedBlocks::NoteCommitted(const BufferUse &use, const char *command) {
  Memory::Locked memory;
  (use.writes ? use.block->committed_write : use.block->committed_read) = {
      this, ++done_, use.buffer_id, command};
}

void UsedBlocks::NoteUse(const BufferUse &use) {
  Block *block = use.block;
  if (Memory::Get().checks_commands) CheckOrder(use);
  if (use.writes) block->unpublished_results = true;
  block->last_use_id = use.buffer_id;
  if (block->listed_in == this) return;
  block->listed_in = this;
  ++block->listings;
  blocks_.push_back(block);
}

void UsedBlocks::BeginBatch() { Memory::Locked()->BeginBatch(); }

char *UsedBlocks::Begin(const BufferUse &use, bool overwrites_all) {
  Memory::Locked memory;
  char *device =
      memory->Begin(use.block, use.buffer_id, use.size, overwrites_all);
  NoteUse(use);
  return device;
}

char *UsedBlocks::UseNow(Buffer *buffer, bool writes, bool overwrites_all) {
  return Begin({buffer->block, buffer->id, buffer->size, writes},
               overwrites_all);
}

void UsedBlocks::Publish() {
  Memory::Locked memory;
  Upkeep upkeep;
  for (Block *block : blocks_) {
    memory->Publish(block);
    --block->listings;
    if (block->listed_in == this) block->listed_in = nullptr;
  }
  blocks_.clear();
  NoteKnown();
}

}  // namespace mps_emulator
