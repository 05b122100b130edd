// Fatal() ends a program whose mistake would crash, hang or silently give wrong
// data on a Mac.
#pragma once

#include <string>

namespace mps_emulator {

// Prints one line, "mps emulator: fatal: <message>", to stderr and ends the
// process with abort().  The message names the mistake and the remedy, and the
// effect on a Mac where the effect is not obvious.
[[noreturn]] void Fatal(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

// Formats like printf().
std::string Text(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Prints Fatal()'s line from a signal handler, and returns.  Only the first
// call in a process prints: one line is enough.
void PrintFatalInHandler(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

// Fatal() calls the handler with the message, without prefix and newline, and
// prints after the handler's return.  The handler may throw a C++ exception if
// the caller of Fatal() allows exceptions: destructors and running commands do
// not.
using FatalHandler = void (*)(const char *message);

// Installs `handler` (nullptr: none) for the whole process; returns the
// previous handler.
FatalHandler SetFatalHandler(FatalHandler handler);

}  // namespace mps_emulator
