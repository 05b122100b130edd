#include "core/fatal.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace mps_emulator {

namespace {

std::atomic<FatalHandler> fatal_handler{nullptr};

// Longer messages are cut.
constexpr int kMaxMessage = 4096;

}  // namespace

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

  // Text that the program wrote to stdout before the mistake comes first.
  fflush(stdout);
  fprintf(stderr, "mps emulator: fatal: %s\n", message);
  fflush(stderr);
  abort();
}

void PrintFatalInHandler(const char *format, ...) {
  static std::atomic<bool> has_printed{false};
  if (has_printed.exchange(true)) return;
  constexpr char kPrefix[] = "mps emulator: fatal: ";
  constexpr int kPrefixLength = sizeof(kPrefix) - 1;
  char line[1024];
  constexpr int kRoom = sizeof(line) - kPrefixLength - 1;  // for the newline
  std::copy_n(kPrefix, kPrefixLength, line);
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line + kPrefixLength, kRoom, format, arguments);
  va_end(arguments);
  length = kPrefixLength + std::min(length, kRoom - 1);
  line[length++] = '\n';
  ssize_t written = write(STDERR_FILENO, line, length);
  static_cast<void>(written);
}

}  // namespace mps_emulator
