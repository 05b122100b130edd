// Defines os_signpost_emit_with_type(), which the macros of signpost.h call.
#pragma once

#include <os/log.h>
#include <stdint.h>

extern "C" {

// Args:
//   type: OS_SIGNPOST_INTERVAL_BEGIN or OS_SIGNPOST_INTERVAL_END.
//   buffer: the arguments in the layout of clang's __builtin_os_log_format().
__attribute__((visibility("default"))) void mps_emulator_emit_signpost(
    os_log_t log, uint8_t type, uint64_t id,
    const char *name, const char *format, const uint8_t *buffer);

}  // extern "C"

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
