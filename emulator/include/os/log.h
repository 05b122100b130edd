// The part of Apple's unified logging that signposts need: handles of logs.
#pragma once

extern "C" {

// A handle is a plain C pointer, in Objective-C too.
typedef struct os_log_s *os_log_t;

// A handle is never freed, as on a Mac.
__attribute__((visibility("default"))) os_log_t
os_log_create(const char *subsystem, const char *category);

}  // extern "C"
