// Unified logging, as far as signposts need it: handles.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// In Objective-C, too, a plain C pointer.
typedef struct os_log_s *os_log_t;

// Handles are kept for the life of the process, as on a Mac.
__attribute__((visibility("default"))) os_log_t
os_log_create(const char *subsystem, const char *category);

#ifdef __cplusplus
}
#endif
