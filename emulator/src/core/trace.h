// What a profiler would show, recorded while somebody asks: signposts of the
// program, and dispatches that the device runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace mps_emulator {

// How many recordings are going on.
extern std::atomic<int> tracing;

inline bool IsTracing() { return tracing.load(std::memory_order_relaxed) > 0; }

// Nanoseconds of a clock that only goes forward.
int64_t TraceTime();

// If this thread is tracing: when it took up its present command.  The command
// gets its buffers after that moment, which on a Mac takes no time.
extern thread_local int64_t command_begin;

// `kind` is "begin", "end" or "event".  The thread is the caller's, the time
// is now.
void TraceSignpost(const char *kind, const std::string &subsystem,
                   const std::string &category, const char *name,
                   const std::string &message, uint64_t id);

// The labels are those of the encoder and of the pipeline; `during` is the name
// of the operator that it ran in, or "".
void TraceDispatch(const std::string &label, const std::string &pipeline,
                   const std::string &kernel, const std::string &during,
                   int64_t begin, int64_t end);

}  // namespace mps_emulator
