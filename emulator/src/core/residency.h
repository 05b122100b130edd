// Buffers that a kernel reaches by an address in another buffer (Metal's
// argument buffers), and not by an argument of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device_range.h"
#include "core/memory.h"

namespace mps_emulator {

// -[MTLBuffer gpuAddress]: the address of the device copy, which stays the same
// for the buffer's lifetime.
uint64_t GpuAddress(Buffer *buffer);

// While it lives, an access to a buffer whose address the program asked for
// faults, unless the buffer is one of `uses`: a Mac has the other buffers
// resident only by chance.  The caller holds the execution lock.
class Residency {
 public:
  explicit Residency(const std::vector<BufferUse> &uses);
  ~Residency();
  Residency(const Residency &) = delete;

  // The buffers of `uses` with an address, and the other ones.
  std::vector<DeviceRange> resident;
  std::vector<DeviceRange> absent;
};

}  // namespace mps_emulator
