// Counts of the emulated device's work, for tests that hold an operation to a
// budget.  mps_emulator/_counters.py has the same order, and more words.
#pragma once

#include <atomic>
#include <cstdint>

namespace mps_emulator {

enum Counter : unsigned {
  kDispatches,         // Metal compute dispatches executed
  kWaitsWithWork,      // waits for a stream that found work in flight
  kHostToDeviceBytes,  // bytes that torch operators copied
  kDeviceToHostBytes,
  kOperators,         // aten operators that ran on the host CPU instead
  kSyncsWithGil,      // calls of dispatch_sync by a thread that held the GIL
  kOperatorBytes,     // bytes of the tensors that torch operators took, made
  kUpkeep,            // nanoseconds for the second copies of buffers
  kAutoreleaseLeaks,  // objects autoreleased where there is no pool
  kNumCounters
};

extern std::atomic<uint64_t> counters[kNumCounters];

inline void Count(Counter counter, uint64_t amount = 1) {
  counters[counter].fetch_add(amount, std::memory_order_relaxed);
}

}  // namespace mps_emulator
