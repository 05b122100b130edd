// Unified logging, as far as signposts need it: enough to compile for macOS
// where Apple's SDK is not at hand.
#pragma once

#include <os/base.h>
#include <os/object.h>

__BEGIN_DECLS

// As in Apple's SDK: an object in Objective-C only.
#if OS_OBJECT_USE_OBJC
OS_OBJECT_DECL(os_log);
#else
typedef struct os_log_s *os_log_t;
#endif

OS_EXPORT os_log_t os_log_create(const char *subsystem, const char *category);

__END_DECLS
