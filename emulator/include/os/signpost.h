// Signposts: intervals that Instruments shows on its timeline.
//
// As on a Mac, names and formats are string literals.  An argument for
// %{public}s is recorded as its text, an argument for %s as <private>.  %% is
// the only other conversion that the emulator has.  Signposts are recorded only
// during a trace (mps_emulator.trace() in Python).
#pragma once

#include <os/log.h>
#include <os/signpost_emit.h>
#include <stdbool.h>
#include <stdint.h>

#define OS_SIGNPOST_EXPORT __attribute__((visibility("default")))

extern "C" {

typedef uint64_t os_signpost_id_t;

#define OS_SIGNPOST_ID_NULL ((os_signpost_id_t)0)
#define OS_SIGNPOST_ID_INVALID ((os_signpost_id_t)~0)

typedef uint8_t os_signpost_type_t;
enum {
  OS_SIGNPOST_INTERVAL_BEGIN = 1,
  OS_SIGNPOST_INTERVAL_END = 2,
};

// The categories of os_log_create() that have a meaning for Instruments.
// Signposts of OS_LOG_CATEGORY_DYNAMIC_TRACING are on only during a trace.
#define OS_LOG_CATEGORY_POINTS_OF_INTEREST "PointsOfInterest"
#define OS_LOG_CATEGORY_DYNAMIC_TRACING "DynamicTracing"

OS_SIGNPOST_EXPORT os_signpost_id_t os_signpost_id_generate(os_log_t log);
OS_SIGNPOST_EXPORT bool os_signpost_enabled(os_log_t log);

}  // extern "C"

#define os_signpost_interval_begin(log, interval_id, name, ...)            \
  os_signpost_emit_with_type(log, OS_SIGNPOST_INTERVAL_BEGIN, interval_id, \
                             name, ##__VA_ARGS__)
#define os_signpost_interval_end(log, interval_id, name, ...)                  \
  os_signpost_emit_with_type(log, OS_SIGNPOST_INTERVAL_END, interval_id, name, \
                             ##__VA_ARGS__)
