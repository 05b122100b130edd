#include "core/trace.h"

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <vector>

#include "core/export.h"
#include "core/json.h"

namespace mps_emulator {

std::atomic<int> tracing{0};
thread_local int64_t command_begin = 0;

namespace {

std::mutex records_mutex;
// Each record is a JSON object.
std::vector<std::string> records;

void Record(const Json &record) {
  std::lock_guard<std::mutex> lock(records_mutex);
  // The trace may have ended since the caller's check.
  if (IsTracing()) records.push_back(record.text());
}

}  // namespace

int64_t TraceTime() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void TraceSignpost(const char *kind, const std::string &subsystem,
                   const std::string &category, const char *name,
                   const std::string &message, uint64_t id) {
  Record(Object({{"kind", kind},
                 {"subsystem", subsystem},
                 {"category", category},
                 {"name", name},
                 {"message", message},
                 {"id", id},
                 {"thread", gettid()},
                 {"time", TraceTime()}}));
}

void TraceDispatch(const std::string &label, const std::string &pipeline,
                   const std::string &kernel, const std::string &during,
                   int64_t begin, int64_t end) {
  Record(Object({{"label", label},
                 {"pipeline", pipeline},
                 {"kernel", kernel},
                 {"during", during},
                 {"begin", begin},
                 {"end", end}}));
}

}  // namespace mps_emulator

// Begins a trace.  Returns the argument for mps_emulator_stop_trace().
MPS_EMULATOR_EXPORT uint64_t mps_emulator_start_trace() {
  using namespace mps_emulator;
  std::lock_guard<std::mutex> lock(records_mutex);
  tracing.fetch_add(1, std::memory_order_relaxed);
  return records.size();
}

// Ends the trace.  Returns the trace's records as a JSON array, the oldest
// record first.  The text is valid until this thread calls the function again.
MPS_EMULATOR_EXPORT const char *mps_emulator_stop_trace(uint64_t begin) {
  using namespace mps_emulator;
  thread_local std::string ans;
  std::lock_guard<std::mutex> lock(records_mutex);
  ans = "[";
  for (size_t i = begin; i < records.size(); ++i)
    ans += (i == begin ? "" : ",") + records[i];
  ans += "]";
  if (tracing.fetch_sub(1, std::memory_order_relaxed) == 1) records.clear();
  return ans.c_str();
}
