// The memory that a kernel may access: the buffers of its dispatch, and its
// threadgroup memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "msl/msl.h"

namespace mps_emulator::msl {

// A piece of threadgroup memory.  `argument` is the index of the argument that
// uses the piece, or -1 if a variable of the kernel uses the piece.
struct ThreadgroupPiece {
  size_t offset;
  size_t bytes;
  int argument;
};

class KernelMemory {
 public:
  // A buffer that the kernel may access.
  struct Buffer {
    // Whether all `extent` bytes from `address` on are in the buffer.
    bool Has(uintptr_t address, size_t extent) const {
      return address - begin < size && extent <= size - (address - begin);
    }

    const Parameter *parameter;
    uintptr_t begin;
    size_t size;
    bool may_be_constant;  // shares bytes with a `constant` buffer
  };

  // What an access touches.
  struct Found {
    enum Kind {
      kInside,      // memory that the kernel may access
      kNotChecked,  // the launch data, or constants of the kernel's library
      kOutside
    } kind;
    bool in_threadgroup;  // in the range of all threadgroup memory
    // The nearest buffer or piece, from whose begin `offset` counts in bytes;
    // nullptr: none is near.  If the access is inside of a buffer, that buffer;
    // then `offset` is not set.
    const Buffer *buffer = nullptr;
    const ThreadgroupPiece *piece = nullptr;
    ptrdiff_t offset = 0;
  };

  // Begins a dispatch.  The arguments are those of RaceChecker::Begin().
  void Begin(const Dispatch &dispatch, const mps_emulator_msl_launch *launch,
             const char *threadgroup_memory, size_t threadgroup_bytes,
             const std::vector<ThreadgroupPiece> *pieces);

  Found Find(uintptr_t begin, size_t size);

  bool IsThreadgroup(uintptr_t address) const {
    return address - threadgroup_begin_ < threadgroup_bytes_;
  }
  uintptr_t threadgroup_begin() const { return threadgroup_begin_; }
  const std::vector<Buffer> &buffers() const { return buffers_; }

 private:
  Found FindPiece(uintptr_t begin, size_t size) const;

  const Dispatch *dispatch_ = nullptr;
  const mps_emulator_msl_launch *launch_ = nullptr;
  uintptr_t threadgroup_begin_ = 0;
  size_t threadgroup_bytes_ = 0;
  const std::vector<ThreadgroupPiece> *pieces_ = nullptr;
  std::vector<Buffer> buffers_;
  const Buffer *recent_ = nullptr;  // the buffer of the last access
  uintptr_t library_pages_[8];      // page numbers of a kernel's library
};

}  // namespace mps_emulator::msl
