// The records of a profiler, while a trace is being recorded: the program's
// signposts and the device's dispatches.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace mps_emulator {

// The number of recordings in progress.
extern std::atomic<int> tracing;

inline bool IsTracing() { return tracing.load(std::memory_order_relaxed) > 0; }

// Nanoseconds of a monotonic clock.
int64_t TraceTime();

// The time at which this thread began its present command, before it prepared
// the command's buffers; 0 without a trace.
extern thread_local int64_t command_begin;

// Records the calling thread and the present time.  `kind` is "begin" or "end".
void TraceSignpost(const char *kind, const std::string &subsystem,
                   const std::string &category, const char *name,
                   const std::string &message, uint64_t id);

// `during` is the name of the operator in which the dispatch ran, or "".
void TraceDispatch(const std::string &label, const std::string &pipeline,
                   const std::string &kernel, const std::string &during,
                   int64_t begin, int64_t end);

}  // namespace mps_emulator
