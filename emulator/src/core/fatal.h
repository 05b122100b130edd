// Fatal(): how the emulator ends a program that does what a Mac would punish
// with a crash, a hang or silent corruption.
#pragma once

#include <atomic>
#include <string>

namespace mps_emulator {

// Prints one line, "mps emulator: fatal: <message>", to stderr and ends the
// process with abort().  The message is complete in itself: what was done,
// why it is wrong on a Mac where that is not obvious, and what to do instead.
[[noreturn]] void Fatal(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

// What printf() would print.
std::string Text(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Set, by a signal handler, where what was wrong has been said already: one
// line is enough.
extern std::atomic<bool> fault_is_described;

// Called by Fatal() with the finished message (no prefix, no newline) before
// anything is printed.  A handler that returns lets Fatal() go on to abort; a
// handler may instead leave by throwing a C++ exception, and then has to know
// that the caller of Fatal() can bear it: Fatal() is also called from
// destructors and from command execution, where nothing may be thrown.
using FatalHandler = void (*)(const char *message);

// Installs `handler` (nullptr: none) for the whole process and returns the
// one that was installed before.
FatalHandler SetFatalHandler(FatalHandler handler);

}  // namespace mps_emulator
