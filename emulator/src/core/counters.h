// Counts the emulated device's work.  Tests compare the counts with an
// operation's budget.  mps_emulator/_counters.py has the counters in the same
// order, and describes them at more length.
#pragma once

#include <atomic>
#include <cstdint>

namespace mps_emulator {

enum Counter : unsigned {
  kDispatches,         // Metal compute dispatches executed
  kWaitsWithWork,      // waits for a stream with work in flight
  kHostToDeviceBytes,  // bytes that torch's copies moved
  kDeviceToHostBytes,
  kOperators,         // aten operators; the emulator runs them on the CPU
  kSyncsWithGil,      // calls of dispatch_sync by a thread that held the GIL
  kOperatorBytes,     // bytes of the operators' arguments and results
  kUpkeep,            // nanoseconds to make and compare copies of buffers
  kAutoreleaseLeaks,  // objects autoreleased without a pool
  kNumCounters
};

extern std::atomic<uint64_t> counters[kNumCounters];

inline void Count(Counter counter, uint64_t amount = 1) {
  counters[counter].fetch_add(amount, std::memory_order_relaxed);
}

}  // namespace mps_emulator
