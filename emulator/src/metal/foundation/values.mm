// NSString and NSError of include/Foundation/Foundation.h.  Both are immutable.
#include <Foundation/Foundation.h>
#include <string.h>

#include <string>
#include <utility>

#include "core/fatal.h"
#include "metal/foundation_internal.h"

using mps_emulator::Fatal;
using mps_emulator::ToNSString;

// The class of strings made at run time.
@interface MPSEmulatorString : NSString {
  std::string *_text;
}
- (instancetype)initWithText:(std::string)text;
@end

@implementation NSString

+ (instancetype)alloc {
  if (self == [NSString class]) return [MPSEmulatorString alloc];
  return [super alloc];
}

+ (instancetype)stringWithUTF8String:(const char *)nullTerminatedCString {
  return [[[self alloc] initWithUTF8String:nullTerminatedCString] autorelease];
}

- (instancetype)initWithUTF8String:(const char *)nullTerminatedCString {
  if (!nullTerminatedCString) Fatal("-[NSString initWithUTF8String:]: NULL");
  return [(MPSEmulatorString *)self initWithText:nullTerminatedCString];
}

- (id)copyWithZone:(NSZone *)zone {
  return [self retain];
}

- (const char *)UTF8String {
  [self doesNotRecognizeSelector:_cmd];
  return nullptr;
}

- (BOOL)isEqualToString:(NSString *)aString {
  return aString && !strcmp([self UTF8String], [aString UTF8String]);
}

@end

@implementation MPSEmulatorString

- (instancetype)initWithText:(std::string)text {
  _text = new std::string(std::move(text));
  return self;
}

GETTER(const char *, UTF8String, _text->c_str())

- (void)dealloc {
  delete _text;
  [super dealloc];
}

@end

@implementation NSConstantString

GETTER(const char *, UTF8String, _bytes)

// A string literal is in the program's data and has no reference count.
GETTER(instancetype, retain, self)

- (oneway void)release {
}

GETTER(instancetype, autorelease, self)
GETTER(NSUInteger, retainCount, NSUIntegerMax)

@end

@implementation NSError

@synthesize domain = _domain, code = _code,
            localizedDescription = _localizedDescription;

- (void)dealloc {
  [_domain release];
  [_localizedDescription release];
  [super dealloc];
}

@end

namespace mps_emulator {

NSError *MakeError(NSErrorDomain domain, NSInteger code,
                   const std::string &text) {
  NSError *error = [[[NSError alloc] init] autorelease];
  error->_domain = [domain retain];
  error->_code = code;
  error->_localizedDescription = [ToNSString(text) retain];
  return error;
}

}  // namespace mps_emulator
