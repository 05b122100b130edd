// Fatal() ends a program whose mistake would crash, hang or silently give wrong
// data on a Mac.
#pragma once

#include <atomic>
#include <string>

namespace mps_emulator {

// Prints one line, "mps emulator: fatal: <message>", to stderr and ends the
// process with abort().  The message is complete: the mistake, the reason why
// it is one on a Mac if that is not obvious, and the remedy.
[[noreturn]] void Fatal(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

// Formats like printf().
std::string Text(const char *format, ...) __attribute__((format(printf, 1, 2)));

// A signal handler sets it when it has printed a message: one line is enough.
extern std::atomic<bool> fault_is_described;

// Fatal() calls it with the message, without prefix and newline, before it
// prints.  If the handler returns, Fatal() aborts.  The handler may throw a C++
// exception if the caller of Fatal() allows that: destructors and running
// commands call Fatal() too, and must not throw.
using FatalHandler = void (*)(const char *message);

// Installs `handler` (nullptr: none) for the whole process; returns the
// previous handler.
FatalHandler SetFatalHandler(FatalHandler handler);

}  // namespace mps_emulator
