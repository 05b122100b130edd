// Emits signposts for test_trace.py.
#include <os/log.h>
#include <os/signpost.h>

#include <map>
#include <mutex>

#include "extension.h"

namespace {

os_log_t LogOf(const std::string &category) {
  static std::mutex mutex;
  static std::map<std::string, os_log_t> logs;
  std::lock_guard<std::mutex> lock(mutex);
  os_log_t &log = logs[category];
  if (!log) log = os_log_create("org.example", category.c_str());
  return log;
}

}  // namespace

bool SignpostsEnabled(const std::string &category) {
  return os_signpost_enabled(LogOf(category));
}

uint64_t BeginInterval(const std::string &category,
                       const std::string &message) {
  os_log_t log = LogOf(category);
  os_signpost_id_t id = os_signpost_id_generate(log);
  os_signpost_interval_begin(log, id, "interval", "%{public}s",
                             message.c_str());
  return id;
}

void EndInterval(const std::string &category, uint64_t id) {
  os_signpost_interval_end(LogOf(category), id, "interval");
}

void PostMessages(const std::string &text) {
  os_log_t log = LogOf("messages");
  os_signpost_interval_begin(log, 1, "plain");
  os_signpost_interval_begin(log, 1, "strings", "%s %{public}s %%",
                             text.c_str(), (text + " and more").c_str());
  os_signpost_interval_begin(log, OS_SIGNPOST_ID_NULL, "null");
  os_signpost_interval_begin(log, OS_SIGNPOST_ID_INVALID, "invalid");
}
