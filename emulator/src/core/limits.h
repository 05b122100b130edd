// Limits of the emulated device that both torch and Metal report, and the size
// of a page.
#pragma once

#include <unistd.h>

#include <cstddef>

namespace mps_emulator {

inline constexpr size_t kMaxBufferLength = size_t{1} << 36;

// The size, in bytes, of the smallest page of memory.
inline constexpr size_t kPage = 4096;

// Returns how many bytes of memory a program should use at most: three quarters
// of the machine's memory, as on a Mac.
inline size_t RecommendedMaxMemory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<size_t>(sysconf(_SC_PAGESIZE)) / 4 * 3;
}

}  // namespace mps_emulator
