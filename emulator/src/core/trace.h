// Records the program's signposts and the device's dispatches while a trace is
// in progress, as a profiler does.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace mps_emulator {

// How many traces are in progress.
extern std::atomic<int> tracing;

inline bool IsTracing() { return tracing.load(std::memory_order_relaxed) > 0; }

// Returns the time of a monotonic clock, in nanoseconds.
int64_t TraceTime();

// The TraceTime() at which this thread began its present command, before it
// prepared the command's buffers; 0 if no trace is in progress.
extern thread_local int64_t command_begin;

// Records a signpost, with the calling thread and the present time.  `kind` is
// "begin" or "end".
void TraceSignpost(const char *kind, const std::string &subsystem,
                   const std::string &category, const char *name,
                   const std::string &message, uint64_t id);

// Records a dispatch.  `during` is the name of the operator in which the
// dispatch ran, or "".  `begin` and `end` are values of TraceTime().
void TraceDispatch(const std::string &label, const std::string &pipeline,
                   const std::string &kernel, const std::string &during,
                   int64_t begin, int64_t end);

}  // namespace mps_emulator
