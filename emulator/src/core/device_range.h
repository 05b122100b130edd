// The addresses [begin, end) of a buffer's device copy.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mps_emulator {

struct DeviceRange {
  uintptr_t begin;
  uintptr_t end;
  uint64_t buffer_id;

  bool Has(uintptr_t address, size_t size) const {
    return begin <= address && address + size <= end;
  }
};

}  // namespace mps_emulator
