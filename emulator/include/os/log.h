// The part of unified logging that signposts need: handles.
#pragma once

extern "C" {

// A plain C pointer, in Objective-C too.
typedef struct os_log_s *os_log_t;

// Handles live as long as the process, as on a Mac.
__attribute__((visibility("default"))) os_log_t
os_log_create(const char *subsystem, const char *category);

}  // extern "C"
