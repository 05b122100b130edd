// Limits of the emulated device that both torch and Metal report, and of
// memory.
#pragma once

#include <unistd.h>

#include <cstddef>

namespace mps_emulator {

inline constexpr size_t kMaxBufferLength = size_t{1} << 36;

// The least size of a page of memory.
inline constexpr size_t kPage = 4096;

// The memory, in bytes, that the device recommends not to exceed: three
// quarters of the machine's, as on a Mac.
inline size_t RecommendedMaxMemory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<size_t>(sysconf(_SC_PAGESIZE)) / 4 * 3;
}

}  // namespace mps_emulator
