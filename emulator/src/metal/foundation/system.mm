// NSURL and NSProcessInfo of include/Foundation/Foundation.h.
#include <Foundation/Foundation.h>
#include <errno.h>
#include <unistd.h>

#include <tuple>

#include "metal/foundation_internal.h"

using mps_emulator::ToNSString;

@implementation NSURL

@synthesize path = _path;

+ (NSURL *)fileURLWithPath:(NSString *)path {
  NSURL *url = [[[self alloc] init] autorelease];
  url->_path = [path copy];
  return url;
}

- (void)dealloc {
  [_path release];
  [super dealloc];
}

GETTER(NSString *, description, [@"file://" stringByAppendingString:_path])

@end

@implementation NSProcessInfo

+ (NSProcessInfo *)processInfo {
  static NSProcessInfo *info = [[self alloc] init];
  return info;
}

GETTER(NSString *, processName,
       [NSString stringWithUTF8String:program_invocation_short_name])
GETTER(int, processIdentifier, getpid())
GETTER(unsigned long long, physicalMemory,
       static_cast<unsigned long long>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<unsigned long long>(sysconf(_SC_PAGESIZE)))

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
