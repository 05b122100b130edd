// Those macros of CPython's pyconfig.h (macOS, arm64) that Python's headers
// use.  This file replaces pyconfig.h in the toolchain's copy of the headers.
// The other headers are the same on every system.
#ifndef K2MPS_MACOS_PYCONFIG_H
#define K2MPS_MACOS_PYCONFIG_H

#define SIZEOF_INT __SIZEOF_INT__
#define SIZEOF_LONG __SIZEOF_LONG__
#define SIZEOF_LONG_LONG __SIZEOF_LONG_LONG__
#define SIZEOF_PID_T 4
#define SIZEOF_PTHREAD_T 8
#define SIZEOF_SIZE_T __SIZEOF_SIZE_T__
#define SIZEOF_TIME_T 8
#define SIZEOF_UINTPTR_T __SIZEOF_POINTER__
#define SIZEOF_VOID_P __SIZEOF_POINTER__
#define SIZEOF_WCHAR_T __SIZEOF_WCHAR_T__
#define SIZEOF__BOOL 1

#ifdef __cplusplus
#include <pthread.h>
#include <sys/types.h>
#include <time.h>

static_assert(SIZEOF_PID_T == sizeof(pid_t));
static_assert(SIZEOF_PTHREAD_T == sizeof(pthread_t));
static_assert(SIZEOF_TIME_T == sizeof(time_t));
static_assert(SIZEOF__BOOL == sizeof(bool));
#endif

#define HAVE_BUILTIN_ATOMIC 1
#define HAVE_CLOCK_GETTIME 1
#define HAVE_DLOPEN 1
#define HAVE_FORK 1
#define HAVE_KQUEUE 1
#define HAVE_LANGINFO_H 1
#define HAVE_LARGEFILE_SUPPORT 1
#define HAVE_PTHREAD_H 1
#define HAVE_SSIZE_T 1
#define HAVE_STDDEF_H 1
#define HAVE_STD_ATOMIC 1
#define HAVE_SYS_SELECT_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_WCHAR_H 1
#define PY_FORMAT_SIZE_T "z"
#define WITH_DOC_STRINGS 1
#define WITH_FREELISTS 1
#define WITH_PYMALLOC 1
#define _DARWIN_C_SOURCE 1

#endif  // K2MPS_MACOS_PYCONFIG_H
