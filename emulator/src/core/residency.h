// Buffers that are not arguments of a kernel: the kernel reads their addresses
// from another buffer.  Metal calls the other buffer an argument buffer.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device_range.h"
#include "core/memory.h"

namespace mps_emulator {

// Returns -[MTLBuffer gpuAddress]: the address of the device copy.  The address
// stays the same for the buffer's lifetime.
uint64_t GpuAddress(Buffer *buffer);

// While a Residency exists, an access to a buffer faults if the program asked
// for the buffer's gpuAddress and the buffer is not in `uses`.  On a Mac, such
// a buffer is resident only by chance.  The caller must hold the execution
// lock.
class Residency {
 public:
  explicit Residency(const std::vector<BufferUse> &uses);
  ~Residency();
  Residency(const Residency &) = delete;

  // The buffers whose gpuAddress the program asked for.  resident: the buffers
  // in `uses`.  absent: all other buffers.
  std::vector<DeviceRange> resident;
  std::vector<DeviceRange> absent;
};

}  // namespace mps_emulator
