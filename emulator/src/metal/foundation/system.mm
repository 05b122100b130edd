// NSURL and NSProcessInfo of include/Foundation/Foundation.h.
#include <Foundation/Foundation.h>
#include <errno.h>
#include <unistd.h>

#include <tuple>

#include "metal/foundation_internal.h"

using mps_emulator::ToNSString;

@implementation NSURL

+ (NSURL *)fileURLWithPath:(NSString *)path {
  NSURL *url = [[[self alloc] init] autorelease];
  url->_path = [path copy];
  return url;
}

- (void)dealloc {
  [_path release];
  [super dealloc];
}

- (NSString *)path {
  return _path;
}

- (NSString *)description {
  return [@"file://" stringByAppendingString:_path];
}

@end

@implementation NSProcessInfo

+ (NSProcessInfo *)processInfo {
  static NSProcessInfo *info = [[self alloc] init];
  return info;
}

- (NSString *)processName {
  return [NSString stringWithUTF8String:program_invocation_short_name];
}

- (int)processIdentifier {
  return getpid();
}

- (unsigned long long)physicalMemory {
  return static_cast<unsigned long long>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<unsigned long long>(sysconf(_SC_PAGESIZE));
}

- (NSOperatingSystemVersion)operatingSystemVersion {
  return {15, 2, 0};
}

- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)version {
  NSOperatingSystemVersion mine = [self operatingSystemVersion];
  return std::tie(mine.majorVersion, mine.minorVersion, mine.patchVersion) >=
         std::tie(version.majorVersion, version.minorVersion,
                  version.patchVersion);
}

@end
