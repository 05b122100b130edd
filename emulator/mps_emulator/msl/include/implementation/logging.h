// <metal_logging>.  The compiler checks the calls; running kernels log nothing,
// because a GPU's log is not part of a program's result.
#pragma once

#if __METAL_VERSION__ >= 320

namespace metal {

enum log_type { log_type_debug, log_type_info, log_type_error, log_type_fault };

struct os_log {
  constexpr os_log(const __constant char *subsystem,
                   const __constant char *category) {}
  template <class... A>
  void log(const __constant char *format, A...) const {}
  template <class... A>
  void log_with_type(log_type type, const __constant char *format, A...) const {
  }
  template <class... A>
  void log_debug(const __constant char *format, A...) const {}
  template <class... A>
  void log_info(const __constant char *format, A...) const {}
  template <class... A>
  void log_error(const __constant char *format, A...) const {}
  template <class... A>
  void log_fault(const __constant char *format, A...) const {}
};

constexpr MSL_CONSTANT os_log os_log_default("", "");

}  // namespace metal

#endif
