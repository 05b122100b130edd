#include "msl/kernel_memory.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>

#include "core/limits.h"

namespace mps_emulator::msl {

namespace {

// If an access outside of all buffers is at most this many bytes from a buffer,
// the report names the nearest buffer.
constexpr uintptr_t kNear = uintptr_t{1} << 24;

}  // namespace

void KernelMemory::Begin(const Dispatch &dispatch,
                         const mps_emulator_msl_launch *launch,
                         const char *threadgroup_memory,
                         size_t threadgroup_bytes,
                         const std::vector<ThreadgroupPiece> *pieces) {
  dispatch_ = &dispatch;
  launch_ = launch;
  threadgroup_begin_ = reinterpret_cast<uintptr_t>(threadgroup_memory);
  threadgroup_bytes_ = threadgroup_bytes;
  pieces_ = pieces;
  recent_ = nullptr;
  buffers_.clear();
  for (const Parameter &parameter : ParametersOf(*dispatch.kernel)) {
    if (parameter.kind != kMpsEmulatorMslBuffer) continue;
    const Binding &binding = dispatch.buffers[parameter.index];
    buffers_.push_back({&parameter, reinterpret_cast<uintptr_t>(binding.data),
                        binding.size, false});
  }
  for (Buffer &buffer : buffers_)
    for (const Buffer &other : buffers_)
      if (other.parameter->in_constant &&
          other.begin < buffer.begin + buffer.size &&
          buffer.begin < other.begin + other.size)
        buffer.may_be_constant = true;
  std::fill(std::begin(library_pages_), std::end(library_pages_), UINTPTR_MAX);
}

KernelMemory::Found KernelMemory::Find(uintptr_t begin, size_t size) {
  if (IsThreadgroup(begin)) return FindPiece(begin, size);
  // Most accesses are to the same buffer as the previous access.
  if (recent_ != nullptr && recent_->Has(begin, size))
    return {Found::kInside, false, recent_};
  if (begin - reinterpret_cast<uintptr_t>(launch_) < sizeof(*launch_))
    return {Found::kNotChecked, false};
  const uintptr_t page = begin / kPage;
  uintptr_t &library_page = library_pages_[page % std::size(library_pages_)];
  if (page == library_page) return {Found::kNotChecked, false};
  const Buffer *near = nullptr;  // the nearest buffer
  uintptr_t distance = UINTPTR_MAX;
  const Buffer *hit = nullptr;
  for (const Buffer &buffer : buffers_) {
    if (buffer.Has(begin, size)) {
      hit = &buffer;
      continue;
    }
    const uintptr_t away = begin < buffer.begin
                               ? buffer.begin - begin
                               : begin + size - (buffer.begin + buffer.size);
    if (away <= distance) {
      near = &buffer;
      distance = away;
    }
  }
  if (hit != nullptr) {
    recent_ = hit;
    return {Found::kInside, false, hit};
  }
  for (const DeviceRange &buffer : dispatch_->resident)
    if (buffer.Has(begin, size)) return {Found::kInside, false};
  // Constants at program scope are in the kernel's library, not in a buffer.
  Dl_info library;
  if (dladdr(reinterpret_cast<void *>(begin), &library) != 0) {
    library_page = page;
    return {Found::kNotChecked, false};
  }
  Found found = {Found::kOutside, false};
  if (near != nullptr && distance <= kNear) {
    found.buffer = near;
    found.offset = static_cast<ptrdiff_t>(begin - near->begin);
  }
  return found;
}

KernelMemory::Found KernelMemory::FindPiece(uintptr_t begin,
                                            size_t size) const {
  const size_t offset = begin - threadgroup_begin_;
  // The last piece that begins at or before `begin`.
  const ThreadgroupPiece *before = nullptr;
  for (const ThreadgroupPiece &piece : *pieces_)
    if (piece.offset <= offset &&
        (before == nullptr || before->offset < piece.offset))
      before = &piece;
  Found found = {Found::kOutside, true};
  if (before == nullptr) return found;
  found.piece = before;
  found.offset = static_cast<ptrdiff_t>(offset - before->offset);
  if (offset + size <= before->offset + before->bytes)
    found.kind = Found::kInside;
  return found;
}

}  // namespace mps_emulator::msl
