#include "core/counters.h"

#include "core/export.h"

namespace mps_emulator {

std::atomic<uint64_t> counters[kNumCounters];

}  // namespace mps_emulator

// Writes at most `count` values to `values`, in the order of Counter; returns
// the number of counters.
MPS_EMULATOR_EXPORT unsigned mps_emulator_counters(uint64_t *values,
                                                   unsigned count) {
  using namespace mps_emulator;
  for (unsigned i = 0; i < count && i < kNumCounters; ++i)
    values[i] = counters[i].load(std::memory_order_relaxed);
  return kNumCounters;
}
