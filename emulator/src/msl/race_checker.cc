#include "msl/race_checker.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "core/environment.h"
#include "core/fatal.h"
#include "core/limits.h"
#include "msl/process.h"

namespace mps_emulator::msl {

namespace {

// metal::mem_flags
constexpr unsigned kMemDevice = 1;
constexpr unsigned kMemThreadgroup = 2;

// How many accesses to a word the checker remembers.  If a word has more, each
// new access replaces a read or, if there is no read, a write.
constexpr size_t kMostRecords = 8;

// Appends to `ranges` the bytes begin + i for which bit i of `bits` is set.
void Append(uintptr_t begin, unsigned bits, ByteRanges *ranges) {
  while (bits != 0) {
    const int first = std::countr_zero(bits);
    const int count = std::countr_one(bits >> first);
    if (!ranges->empty() && ranges->back().end == begin + first)
      ranges->back().end += count;
    else
      ranges->push_back({begin + first, begin + first + count});
    bits &= ~0u << (first + count);
  }
}

}  // namespace

bool CheckRaces() { return EnvironmentFlag("MPS_EMULATOR_CHECK_RACES"); }

void RaceChecker::Begin(const Dispatch &dispatch,
                        const mps_emulator_msl_launch *launch,
                        const char *threadgroup_memory,
                        size_t threadgroup_bytes,
                        const std::vector<ThreadgroupPiece> *pieces) {
  dispatch_ = &dispatch;
  launch_ = launch;
  threadgroup_bytes_ = threadgroup_bytes;
  memory_.Begin(dispatch, launch, threadgroup_memory, threadgroup_bytes,
                pieces);
  fences_used_ = false;
  failure_.clear();
  device_words_.clear();
  touched_.clear();
  std::fill(std::begin(recent_pages_), std::end(recent_pages_), RecentPage());
  threadgroup_words_.resize(threadgroup_bytes / 4);
  passed_on_.clear();
  if (dispatch.concurrent_group == 0 ||
      dispatch.concurrent_group != concurrent_group_)
    former_.clear();
  concurrent_group_ = dispatch.concurrent_group;
}

void RaceChecker::End() {
  if (dispatch_->accesses != nullptr) *dispatch_->accesses = AccessesSoFar();
  if (concurrent_group_ == 0) return;
  for (const auto &[word, records] : device_words_)
    for (const Record &record : records)
      former_[word].push_back({record, dispatch_->kernel->name});
}

Accesses RaceChecker::AccessesSoFar() const {
  Accesses accesses;
  for (const auto &[page, touched] : touched_)
    for (size_t i = 0; i < kPage / 8; ++i) {
      Append(page * kPage + 8 * i, touched.read[i], &accesses.reads);
      Append(page * kPage + 8 * i, touched.written[i], &accesses.writes);
    }
  return accesses;
}

void RaceChecker::NoteTouched(uintptr_t word, const Record &record) {
  const uintptr_t page = word / kPage;
  auto &[recent_page, touched] = recent_pages_[page % std::size(recent_pages_)];
  if (touched == nullptr || recent_page != page) {
    recent_page = page;
    touched = &touched_[page];
  }
  uint8_t *bits = record.Writes() ? touched->written : touched->read;
  bits[word % kPage / 8] |= record.bytes << word % 8;
}

void RaceChecker::BeginThreadgroup(unsigned threads) {
  const unsigned *position = launch_->threadgroup_position;
  const unsigned *count = launch_->threadgroup_count;
  group_ = position[0] + count[0] * (position[1] + count[1] * position[2]);
  // Epochs begin at 1, because Progress::epoch is 0 if no access of a
  // threadgroup is known to have happened.
  epoch_[kDevice] = epoch_[kThreadgroup] = 1;
  threads_.assign(threads, Thread());
  initialized_.assign(threadgroup_bytes_, 0);
  for (size_t index : used_words_) threadgroup_words_[index].clear();
  used_words_.clear();
}

void RaceChecker::EndThreadgroup() const {
  if (!failure_.empty())
    Fatal("kernel '%s': %s", dispatch_->kernel->name, failure_.c_str());
}

void RaceChecker::Access(unsigned thread, const void *address, size_t size,
                         unsigned flags, const void *place) {
  if (!failure_.empty()) return;
  auto begin = reinterpret_cast<uintptr_t>(address);
  const KernelMemory::Found found = memory_.Find(begin, size);
  if (found.kind == KernelMemory::Found::kNotChecked) return;
  if (found.kind == KernelMemory::Found::kOutside) {
    NoteOutside(thread, size, flags, found, place);
    return;
  }
  const Memory memory = found.in_threadgroup ? kThreadgroup : kDevice;
  if (memory == kThreadgroup) {
    CheckInitialized(thread, begin, size, flags, place);
  } else if (found.buffer != nullptr && found.buffer->may_be_constant &&
             (flags & kMpsEmulatorMslWrite)) {
    CheckConstant(thread, begin, size, place);
  }

  Record record = {group_,
                   epoch_[memory],
                   threads_[thread].simd_epoch[memory],
                   threads_[thread].fence,
                   static_cast<uint16_t>(thread),
                   0,
                   static_cast<uint8_t>(flags),
                   place};
  uintptr_t end = begin + size;
  for (uintptr_t word = begin / 4 * 4; word < end; word += 4) {
    unsigned first = word < begin ? begin - word : 0;
    unsigned last = std::min<uintptr_t>(end - word, 4);
    record.bytes = static_cast<uint8_t>((1u << last) - (1u << first));
    if (memory == kDevice) {
      CheckOthers(word, record);
      NoteTouched(word, record);
    }
    AccessWord(thread, word, record, memory);
  }

  if (fences_used_ && (flags & kMpsEmulatorMslAtomic)) {
    Clock &passed_on = passed_on_[begin];
    // Fence() will add `seen` to the thread's past.
    Join(&threads_[thread].seen, passed_on);
    if (flags & kMpsEmulatorMslWrite)
      Join(&passed_on, threads_[thread].released);
  }
}

void RaceChecker::CheckConstant(unsigned thread, uintptr_t begin, size_t size,
                                const void *place) {
  for (const KernelMemory::Buffer &buffer : memory_.buffers()) {
    if (!buffer.parameter->in_constant || !buffer.Has(begin, size)) continue;
    failure_ = Text(
        "%s writes to memory that also belongs to buffer %u ('%s'), in %s: "
        "nothing may write to a kernel's `constant` memory while the kernel "
        "runs, because the GPU reads it from a cache.  Declare the parameter "
        "`device const`, or bind another buffer",
        Name(thread, group_).c_str(), buffer.parameter->index,
        buffer.parameter->name, LineInSource(place).c_str());
  }
}

void RaceChecker::CheckOthers(uintptr_t word, const Record &record) {
  if (!failure_.empty()) return;
  auto found = former_.find(word);
  if (found != former_.end()) {
    for (const Former &other : found->second) {
      if (!record.ConflictsWith(other.record)) continue;
      failure_ = Text(
          "data race between two dispatches of a concurrent encoder on %s: "
          "kernel '%s', %s, and this one, %s: put "
          "memoryBarrierWithScope:MTLBarrierScopeBuffers between the "
          "dispatches, or take a serial encoder",
          DescribeAddress(word, kDevice).c_str(), other.kernel.c_str(),
          DescribeAccess(other.record).c_str(), DescribeAccess(record).c_str());
      return;
    }
  }
  if (dispatch_->host_writes == nullptr) return;
  // The accessed bytes of the word follow one another.
  const uintptr_t first = word + __builtin_ctz(record.bytes),
                  last = word + 31 - __builtin_clz(record.bytes);
  for (const auto &[begin, end] : *dispatch_->host_writes) {
    if (last < reinterpret_cast<uintptr_t>(begin) ||
        first >= reinterpret_cast<uintptr_t>(end))
      continue;
    failure_ = Text(
        "the host wrote to %s after the commit of the command buffer in which "
        "%s: on a Mac the kernel sees the old or the new bytes, by chance.  "
        "Wait for the command buffer first, or write to another buffer",
        DescribeAddress(word, kDevice).c_str(), DescribeAccess(record).c_str());
    return;
  }
}

RaceChecker::Word &RaceChecker::WordAt(uintptr_t word, Memory memory) {
  if (memory == kDevice) return device_words_[word];
  const size_t index = (word - memory_.threadgroup_begin()) / 4;
  Word &found = threadgroup_words_[index];
  if (found.empty()) used_words_.push_back(index);
  return found;
}

void RaceChecker::AccessWord(unsigned thread, uintptr_t word,
                             const Record &record, Memory memory) {
  Word &records = WordAt(word, memory);
  // The record of an earlier access that equals the present access, if there is
  // one.  The present access is not compared with the records that follow: each
  // of these records was compared with the equal access when the record was
  // added.
  const auto same =
      std::find_if(records.begin(), records.end(), [&](const Record &other) {
        return other.group == record.group && other.thread == record.thread &&
               other.flags == record.flags && other.bytes == record.bytes &&
               other.epoch == record.epoch &&
               other.simd_epoch == record.simd_epoch &&
               other.fence == record.fence;
      });
  const bool is_recorded = same != records.end();
  auto kept = records.begin();
  for (auto other = records.begin(); other != same; ++other) {
    const bool ordered = HappensBefore(*other, record);
    if (!ordered && record.ConflictsWith(*other)) {
      Report(*other, record, word, memory);
      return;
    }
    // `other` can be forgotten if every access that races with `other` also
    // races with the present access.  This is so if the present access is
    // ordered after `other`, includes all bytes of `other`, is a write if
    // `other` is a write, and is atomic exactly if `other` is atomic.
    const bool is_covered = ordered && (other->bytes & ~record.bytes) == 0 &&
                            (record.Writes() || !other->Writes()) &&
                            other->IsAtomic() == record.IsAtomic();
    if (!is_covered) *kept++ = *other;
  }
  records.erase(kept, same);
  if (is_recorded) return;
  if (records.size() < kMostRecords) {
    records.push_back(record);
    return;
  }
  // The word has too many records, so one record is replaced: the record of a
  // read, if there is one.
  const auto read = std::find_if_not(records.begin(), records.end(),
                                     std::mem_fn(&Record::Writes));
  if (read != records.end())
    *read = record;
  else
    records[thread % kMostRecords] = record;
}

bool RaceChecker::HappensBefore(const Record &before, const Record &now) const {
  if (before.group == now.group) {
    if (before.thread == now.thread || before.epoch != now.epoch) return true;
    if (before.thread / kSimdWidth == now.thread / kSimdWidth &&
        before.simd_epoch != now.simd_epoch)
      return true;
  }
  if (!fences_used_) return false;
  const Clock &past = threads_[now.thread].past;
  auto found = past.find(before.group);
  if (found == past.end()) return false;
  const auto &[epoch, fences] = found->second;
  if (before.epoch != epoch) return before.epoch < epoch;
  auto last = fences.find(before.thread);
  return last != fences.end() && before.fence <= last->second;
}

void RaceChecker::NoteOutside(unsigned thread, size_t size, unsigned flags,
                              const KernelMemory::Found &found,
                              const void *place) {
  std::string where = " outside of every buffer of the dispatch";
  if (found.piece != nullptr && found.piece->argument >= 0)
    where = Text(
        " at byte %td of the threadgroup memory at index %d, which has %zu "
        "bytes (setThreadgroupMemoryLength:atIndex:)",
        found.offset, found.piece->argument, found.piece->bytes);
  else if (found.piece != nullptr)
    where = Text(" at byte %td of a threadgroup variable of %zu bytes",
                 found.offset, found.piece->bytes);
  else if (found.in_threadgroup)
    where = " in threadgroup memory that the kernel does not use";
  else if (found.buffer != nullptr)
    where = Text(" at byte %td of buffer %u ('%s'), which has %zu bytes",
                 found.offset, found.buffer->parameter->index,
                 found.buffer->parameter->name, found.buffer->size);
  failure_ = Text("%s %s %zu bytes%s, in %s", Name(thread, group_).c_str(),
                  flags & kMpsEmulatorMslWrite ? "writes" : "reads", size,
                  where.c_str(), LineInSource(place).c_str());
}

void RaceChecker::UseOutsideOfArray(unsigned thread, const char *type,
                                    long index, unsigned line) {
  // clang puts the type's name in quotes.  For a vector, more text follows the
  // quotes.  Only arrays in a thread's private memory are checked here, because
  // Access() checks every access to other memory.
  constexpr char kPrivate[] = "__private ";
  std::string name(type + 1, strcspn(type + 1, "'"));
  const size_t at = name.find(kPrivate);
  if (at == std::string::npos || !failure_.empty()) return;
  name.erase(at, strlen(kPrivate));
  failure_ = Text("%s uses index %ld of the type '%s' in line %u",
                  Name(thread, group_).c_str(), index, name.c_str(), line);
}

void RaceChecker::ConvertOutside(unsigned thread, float value, const char *type,
                                 unsigned line) {
  if (!failure_.empty()) return;
  // clang puts the type's name in quotes.  For a typedef, more text follows the
  // quotes.
  const std::string name(type + 1, strcspn(type + 1, "'"));
  failure_ = Text(
      "%s converts %g in line %u to the type '%s', which lacks the value: the "
      "result is undefined.  clamp() the value first",
      Name(thread, group_).c_str(), value, line, name.c_str());
}

void RaceChecker::ReadInactiveLane(unsigned thread, unsigned lane,
                                   unsigned line) {
  if (!failure_.empty()) return;
  if (lane == kMpsEmulatorMslLanesDiffer) {
    failure_ = Text(
        "%s and another thread of its simdgroup name different lanes in the "
        "simd_broadcast in line %u: on a GPU the value is undefined.  "
        "simd_shuffle can read a different lane in each thread",
        Name(thread, group_).c_str(), line);
    return;
  }
  if (lane >= kSimdWidth) {
    failure_ = Text(
        "%s reads the value of lane %u of its simdgroup in line %u, but a "
        "simdgroup has lanes 0 to 31: on a GPU the value is undefined",
        Name(thread, group_).c_str(), lane, line);
    return;
  }
  failure_ = Text(
      "%s reads the value of lane %u of its simdgroup in line %u, but that "
      "lane takes no part in the shuffle: on a GPU the value is undefined.  "
      "Let all lanes reach the call, or read only lanes that reach the call",
      Name(thread, group_).c_str(), lane, line);
}

void RaceChecker::CheckInitialized(unsigned thread, uintptr_t begin,
                                   size_t size, unsigned flags,
                                   const void *place) {
  const auto first =
      initialized_.begin() + (begin - memory_.threadgroup_begin());
  const auto last =
      first + std::min<ptrdiff_t>(size, initialized_.end() - first);
  const bool is_plain_write =
      flags & kMpsEmulatorMslWrite && !(flags & kMpsEmulatorMslAtomic);
  if (!is_plain_write && (flags & kMpsEmulatorMslStore) == 0 &&
      std::find(first, last, 0) != last)
    failure_ = Text(
        "%s reads threadgroup memory that no thread has written so far, in %s: "
        "initialise the memory, and put a threadgroup_barrier before the read",
        Name(thread, group_).c_str(), LineInSource(place).c_str());
  std::fill(first, last, 1);
}

void RaceChecker::PassThreadgroupBarrier(unsigned mem_flags) {
  if (mem_flags & kMemThreadgroup) ++epoch_[kThreadgroup];
  if ((mem_flags & kMemDevice) == 0) return;
  ++epoch_[kDevice];
  if (!fences_used_) return;
  Clock all;
  for (const Thread &thread : threads_) Join(&all, thread.past);
  for (Thread &thread : threads_) thread.past = all;
}

void RaceChecker::PassSimdgroupBarrier(unsigned thread, unsigned mem_flags) {
  Thread &self = threads_[thread];
  if (mem_flags & kMemThreadgroup) ++self.simd_epoch[kThreadgroup];
  if (mem_flags & kMemDevice) ++self.simd_epoch[kDevice];
}

void RaceChecker::Fence(unsigned thread, unsigned mem_flags) {
  if ((mem_flags & kMemDevice) == 0) return;
  fences_used_ = true;
  Thread &self = threads_[thread];
  Join(&self.past, self.seen);
  self.released = self.past;
  Clock own;
  own[group_] = {epoch_[kDevice],
                 {{static_cast<uint16_t>(thread), self.fence++}}};
  Join(&self.released, own);
}

void RaceChecker::Join(Clock *clock, const Clock &other) {
  for (const auto &[group, progress] : other) {
    Progress &own = (*clock)[group];
    if (own.epoch < progress.epoch) {
      own = progress;
    } else if (own.epoch == progress.epoch) {
      for (const auto &[thread, fence] : progress.fences) {
        uint32_t &last = own.fences[thread];
        last = std::max(last, fence);
      }
    }
  }
}

// ---- Messages

void RaceChecker::Report(const Record &before, const Record &now,
                         uintptr_t address, Memory memory) {
  const char *advice =
      "threadgroups of one dispatch run in any order or at the same time: use "
      "atomics and atomic_thread_fence, or two dispatches";
  if (before.group == now.group)
    advice = memory == kThreadgroup
                 ? "put threadgroup_barrier(mem_flags::mem_threadgroup) "
                   "between them"
                 : "put threadgroup_barrier(mem_flags::mem_device) between "
                   "them";
  failure_ =
      Text("data race on %s: %s, and %s, and nothing orders the two: %s",
           DescribeAddress(address, memory).c_str(),
           DescribeAccess(before).c_str(), DescribeAccess(now).c_str(), advice);
}

std::string RaceChecker::DescribeAccess(const Record &record) const {
  return Text("%s %s%s in %s", Name(record.thread, record.group).c_str(),
              record.flags & kMpsEmulatorMslWrite ? "writes" : "reads",
              record.flags & kMpsEmulatorMslAtomic ? " atomically" : "",
              LineInSource(record.place).c_str());
}

std::string RaceChecker::Name(unsigned thread, uint32_t group) const {
  const unsigned *count = launch_->threadgroup_count;
  return Text("thread %u of threadgroup (%u, %u, %u)", thread, group % count[0],
              group / count[0] % count[1], group / count[0] / count[1]);
}

std::string RaceChecker::DescribeAddress(uintptr_t address,
                                         Memory memory) const {
  if (memory == kThreadgroup) return "threadgroup memory";
  for (const KernelMemory::Buffer &buffer : memory_.buffers()) {
    // The word may begin up to 3 bytes before an unaligned buffer.
    if (buffer.begin != 0 && address + 3 - buffer.begin < buffer.size + 3)
      return Text("byte %zu of buffer %u ('%s')",
                  address < buffer.begin ? size_t{0} : address - buffer.begin,
                  buffer.parameter->index, buffer.parameter->name);
  }
  return "device memory";
}

}  // namespace mps_emulator::msl
