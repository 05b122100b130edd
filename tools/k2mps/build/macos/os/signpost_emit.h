// Signposts, as far as k2's backend posts them: enough to compile for macOS
// where Apple's SDK is not at hand.  Functions, types and values are Apple's.
#pragma once

#include <os/log.h>
#include <stdbool.h>
#include <stdint.h>

__BEGIN_DECLS

typedef uint64_t os_signpost_id_t;

#define OS_SIGNPOST_ID_NULL ((os_signpost_id_t)0)
#define OS_SIGNPOST_ID_INVALID ((os_signpost_id_t)~0)

typedef uint8_t os_signpost_type_t;
enum {
  OS_SIGNPOST_EVENT = 0,
  OS_SIGNPOST_INTERVAL_BEGIN = 1,
  OS_SIGNPOST_INTERVAL_END = 2,
};

#define OS_LOG_CATEGORY_POINTS_OF_INTEREST "PointsOfInterest"
#define OS_LOG_CATEGORY_DYNAMIC_TRACING "DynamicTracing"

OS_EXPORT os_signpost_id_t os_signpost_id_generate(os_log_t log);
OS_EXPORT bool os_signpost_enabled(os_log_t log);

// What the macros call.  `buf` has the arguments as clang lays them out; `dso`
// is the image that the name and the format are strings of.
OS_EXPORT void _os_signpost_emit_with_name_impl(
    void *dso, os_log_t log, os_signpost_type_t type, os_signpost_id_t spid,
    const char *name, const char *format, uint8_t *buf, uint32_t size);

// The image's own header, from the linker.
struct mach_header;
extern struct mach_header __dso_handle;

__END_DECLS

// Instruments reads these strings out of the image, from this section.  Of a
// section that is said to hold literals lld makes a part of __cstring.
#define K2MPS_OS_STRING(variable, literal) \
  static const char variable[]             \
      __attribute__((section("__TEXT,__oslogstring"))) = "" literal
#define K2MPS_FORMAT(format, ...) format

#define os_signpost_emit_with_type(log, type, spid, name, ...)              \
  __extension__({                                                           \
    os_log_t k2mps_log = (log);                                             \
    os_signpost_id_t k2mps_id = (spid);                                     \
    if (k2mps_id != OS_SIGNPOST_ID_NULL &&                                  \
        k2mps_id != OS_SIGNPOST_ID_INVALID &&                               \
        os_signpost_enabled(k2mps_log)) {                                   \
      K2MPS_OS_STRING(k2mps_name, name);                                    \
      K2MPS_OS_STRING(k2mps_format, K2MPS_FORMAT("" __VA_ARGS__));          \
      uint8_t                                                               \
          k2mps_buffer[__builtin_os_log_format_buffer_size("" __VA_ARGS__)] \
          __attribute__((aligned(16)));                                     \
      _os_signpost_emit_with_name_impl(                                     \
          &__dso_handle, k2mps_log, (type), k2mps_id, k2mps_name,           \
          k2mps_format,                                                     \
          (uint8_t *)__builtin_os_log_format(k2mps_buffer, "" __VA_ARGS__), \
          sizeof(k2mps_buffer));                                            \
    }                                                                       \
  })

#define os_signpost_interval_begin(log, interval_id, name, ...)            \
  os_signpost_emit_with_type(log, OS_SIGNPOST_INTERVAL_BEGIN, interval_id, \
                             name, ##__VA_ARGS__)
#define os_signpost_interval_end(log, interval_id, name, ...)                  \
  os_signpost_emit_with_type(log, OS_SIGNPOST_INTERVAL_END, interval_id, name, \
                             ##__VA_ARGS__)
