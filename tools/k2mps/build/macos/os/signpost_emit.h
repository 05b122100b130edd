// The macro to which the macros of os/signpost.h expand on macOS.  It uses the
// same symbols and the same section as the macro of Apple's SDK.
#pragma once

#include <os/base.h>
#include <os/log.h>
#include <stdint.h>

__BEGIN_DECLS

// Args:
//   dso: the image that contains the strings `name` and `format`.
//   type: an OS_SIGNPOST_* of os/signpost.h.
//   buf: the arguments, which __builtin_os_log_format has encoded.
//   size: the size of `buf` in bytes.
OS_EXPORT void _os_signpost_emit_with_name_impl(
    void *dso, os_log_t log, uint8_t type, uint64_t spid,
    const char *name, const char *format, uint8_t *buf, uint32_t size);

// The header of this image, which the linker defines.
struct mach_header;
extern struct mach_header __dso_handle;

__END_DECLS

// Defines a signpost's string in the section __oslogstring, from which
// Instruments reads it.  The section is not of type cstring_literals, because
// lld would move strings of such a section to the section __cstring.
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
