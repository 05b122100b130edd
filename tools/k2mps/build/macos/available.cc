// Defines the function that clang calls for `@available(macOS 15.0, *)`.  On a
// Mac, this function is in clang's runtime library for macOS, which clang for
// Linux lacks.  The function calls a function of macOS that compares versions.

#include <stdint.h>

extern "C" {

struct Version {
  uint32_t platform;
  uint32_t version;  // 15.2.1 is 0x000f0201
};

bool _availability_version_check(uint32_t count, const Version *versions);

__attribute__((visibility("hidden"))) int32_t __isPlatformVersionAtLeast(
    uint32_t platform, uint32_t major, uint32_t minor, uint32_t patch) {
  const Version version = {platform, major << 16 | minor << 8 | patch};
  return _availability_version_check(1, &version);
}

}  // extern "C"
