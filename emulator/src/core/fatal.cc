#include "core/fatal.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace mps_emulator {

namespace {

std::atomic<FatalHandler> fatal_handler{nullptr};

// Some messages contain kernel names and compiler texts.  Longer messages are
// cut.
constexpr int kMaxMessage = 4096;

}  // namespace

std::atomic<bool> fault_is_described{false};

FatalHandler SetFatalHandler(FatalHandler handler) {
  return fatal_handler.exchange(handler);
}

std::string Text(const char *format, ...) {
  char text[kMaxMessage];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

void Fatal(const char *format, ...) {
  char message[kMaxMessage];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);

  if (FatalHandler handler = fatal_handler.load()) handler(message);

  // stdout first, because the program printed its text before.
  fflush(stdout);
  fprintf(stderr, "mps emulator: fatal: %s\n", message);
  fflush(stderr);
  abort();
}

}  // namespace mps_emulator
