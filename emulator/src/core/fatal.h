// Fatal() ends the program after a mistake that, on a Mac, would cause a crash,
// a hang or silently wrong data.
#pragma once

#include <string>

namespace mps_emulator {

// Prints one line, "mps emulator: fatal: <message>", to stderr and ends the
// process with abort().  The message names the mistake and the remedy, and the
// effect on a Mac unless the effect is obvious.
[[noreturn]] void Fatal(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

// Formats like printf().
std::string Text(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Prints Fatal()'s line from a signal handler, and returns.  Only the first
// call in a process prints, because one line is enough.
void PrintFatalInHandler(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

// Fatal() calls the handler before it prints.  `message` has neither the prefix
// nor a newline.  The handler may throw a C++ exception, but not if a
// destructor or a running command called Fatal(), because no exception may
// leave a destructor or a command.
using FatalHandler = void (*)(const char *message);

// Installs `handler` for the whole process.  If `handler` is nullptr, the
// process has no handler.  Returns the previous handler.
FatalHandler SetFatalHandler(FatalHandler handler);

}  // namespace mps_emulator
