// Signposts: intervals and events that Instruments shows on its timeline.
//
// As on a Mac names and formats are string literals, and a string argument is
// private, which shows as <private>, unless the format says %{public}s.
// Formats have the conversions d i u x f g s and %%.  Nothing is kept unless a
// trace is being recorded (mps_emulator.trace() in Python).
#pragma once

#include <os/log.h>
#include <stdbool.h>
#include <stdint.h>

#define OS_SIGNPOST_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t os_signpost_id_t;

#define OS_SIGNPOST_ID_NULL ((os_signpost_id_t)0)
#define OS_SIGNPOST_ID_INVALID ((os_signpost_id_t)~0)
#define OS_SIGNPOST_ID_EXCLUSIVE ((os_signpost_id_t)0xEEEEB0B5B2B2EEEE)

typedef uint8_t os_signpost_type_t;
enum {
  OS_SIGNPOST_EVENT = 0,
  OS_SIGNPOST_INTERVAL_BEGIN = 1,
  OS_SIGNPOST_INTERVAL_END = 2,
};

// Categories of os_log_create() with a meaning of their own.  Signposts of the
// second are off, and cost next to nothing, unless somebody records them.
#define OS_LOG_CATEGORY_POINTS_OF_INTEREST "PointsOfInterest"
#define OS_LOG_CATEGORY_DYNAMIC_TRACING "DynamicTracing"

OS_SIGNPOST_EXPORT os_signpost_id_t os_signpost_id_generate(os_log_t log);
OS_SIGNPOST_EXPORT os_signpost_id_t
os_signpost_id_make_with_pointer(os_log_t log, const void *pointer);
OS_SIGNPOST_EXPORT bool os_signpost_enabled(os_log_t log);

// What the macros call.  `buffer` holds the arguments as clang's
// __builtin_os_log_format() lays them out.
OS_SIGNPOST_EXPORT void mps_emulator_emit_signpost(
    os_log_t log, os_signpost_type_t type, os_signpost_id_t id,
    const char *name, const char *format, const uint8_t *buffer);

#ifdef __cplusplus
}
#endif

#define MPS_EMULATOR_FORMAT(format, ...) format

#define os_signpost_emit_with_type(log, type, spid, name, ...)                 \
  __extension__({                                                              \
    os_log_t mps_emulator_log = (log);                                         \
    os_signpost_id_t mps_emulator_id = (spid);                                 \
    if (mps_emulator_id != OS_SIGNPOST_ID_NULL &&                              \
        mps_emulator_id != OS_SIGNPOST_ID_INVALID &&                           \
        os_signpost_enabled(mps_emulator_log)) {                               \
      uint8_t mps_emulator_buffer[__builtin_os_log_format_buffer_size(         \
          "" __VA_ARGS__)] __attribute__((aligned(16)));                       \
      mps_emulator_emit_signpost(mps_emulator_log, (type), mps_emulator_id,    \
                                 "" name, MPS_EMULATOR_FORMAT("" __VA_ARGS__), \
                                 (const uint8_t *)__builtin_os_log_format(     \
                                     mps_emulator_buffer, "" __VA_ARGS__));    \
    }                                                                          \
  })

#define os_signpost_event_emit(log, event_id, name, ...)             \
  os_signpost_emit_with_type(log, OS_SIGNPOST_EVENT, event_id, name, \
                             ##__VA_ARGS__)
#define os_signpost_interval_begin(log, interval_id, name, ...)            \
  os_signpost_emit_with_type(log, OS_SIGNPOST_INTERVAL_BEGIN, interval_id, \
                             name, ##__VA_ARGS__)
#define os_signpost_interval_end(log, interval_id, name, ...)                  \
  os_signpost_emit_with_type(log, OS_SIGNPOST_INTERVAL_END, interval_id, name, \
                             ##__VA_ARGS__)
