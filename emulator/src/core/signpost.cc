#include <os/signpost.h>
#include <string.h>

#include <atomic>
#include <string>

#include "core/fatal.h"
#include "core/trace.h"

using namespace mps_emulator;

struct os_log_s {
  std::string subsystem, category;
  bool dynamic;
};

namespace {

// Reads the arguments of a signpost, in the layout of
// __builtin_os_log_format(): two bytes for the whole buffer, and then for each
// argument a byte of flags, a byte with the argument's size, and the argument.
class Arguments {
 public:
  explicit Arguments(const uint8_t *buffer) : next_(buffer + 2) {}

  template <typename T>
  T Take() {
    T value;
    memcpy(&value, next_ + 2, sizeof(T));
    next_ += 2 + next_[1];
    return value;
  }

  bool IsPublic() const { return next_[0] & 2; }

 private:
  const uint8_t *next_;
};

std::string Formatted(const char *format, const uint8_t *buffer) {
  Arguments arguments(buffer);
  std::string ans;
  for (const char *p = format; *p; ++p) {
    if (*p != '%') {
      ans += *p;
      continue;
    }
    if (*++p == '%') {
      ans += '%';
      continue;
    }
    if (*p == '{') p = strchr(p, '}') + 1;
    if (*p != 's')
      Fatal("os_signpost: the emulator does not support %%%c, in \"%s\"", *p,
            format);
    bool is_public = arguments.IsPublic();
    const char *text = arguments.Take<const char *>();
    ans += !is_public ? "<private>" : text ? text : "(null)";
  }
  return ans;
}

}  // namespace

os_log_t os_log_create(const char *subsystem, const char *category) {
  return new os_log_s{subsystem, category,
                      strcmp(category, OS_LOG_CATEGORY_DYNAMIC_TRACING) == 0};
}

os_signpost_id_t os_signpost_id_generate(os_log_t log) {
  static std::atomic<os_signpost_id_t> last{0};
  return ++last;
}

bool os_signpost_enabled(os_log_t log) { return !log->dynamic || IsTracing(); }

void mps_emulator_emit_signpost(os_log_t log, os_signpost_type_t type,
                                os_signpost_id_t id, const char *name,
                                const char *format, const uint8_t *buffer) {
  if (!IsTracing()) return;
  const char *kind = type == OS_SIGNPOST_INTERVAL_BEGIN ? "begin" : "end";
  TraceSignpost(kind, log->subsystem, log->category, name,
                Formatted(format, buffer), id);
}
