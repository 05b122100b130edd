// NSString, NSArray and NSError of include/Foundation/Foundation.h.  None of
// them changes once it is made.
#include <Foundation/Foundation.h>
#include <string.h>

#include <string>
#include <utility>
#include <vector>

#include "core/fatal.h"
#include "metal/foundation_internal.h"

using mps_emulator::Fatal;
using mps_emulator::ToNSString;

namespace {

using Objects = std::vector<id>;

Objects *ObjectsOf(void *objects) { return static_cast<Objects *>(objects); }

}  // namespace

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

- (BOOL)isEqual:(id)object {
  return
      [object isKindOfClass:[NSString class]] && [self isEqualToString:object];
}

GETTER(NSString *, description, self)

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

// The object is in the program's data, without a header.
GETTER(instancetype, retain, self)

- (oneway void)release {
}

GETTER(instancetype, autorelease, self)
GETTER(NSUInteger, retainCount, NSUIntegerMax)

@end

@implementation NSArray

+ (instancetype)arrayWithObjects:(const id[])objects count:(NSUInteger)cnt {
  NSArray *array = [[[self alloc] init] autorelease];
  array->_objects = new Objects(objects, objects + cnt);
  for (id object : *ObjectsOf(array->_objects)) [object retain];
  return array;
}

- (void)dealloc {
  for (id object : *ObjectsOf(_objects)) [object release];
  delete ObjectsOf(_objects);
  [super dealloc];
}

GETTER(NSUInteger, count, ObjectsOf(_objects)->size())

- (id)objectAtIndex:(NSUInteger)index {
  if (index >= [self count])
    Fatal("-[NSArray objectAtIndex:]: index %lu is beyond the %lu elements",
          index, [self count]);
  return (*ObjectsOf(_objects))[index];
}

- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)state
                                  objects:(id *)buffer
                                    count:(NSUInteger)len {
  if (state->state) return 0;
  state->state = 1;
  state->mutationsPtr = &state->extra[0];
  state->itemsPtr = ObjectsOf(_objects)->data();
  return [self count];
}

@end

@implementation NSError

@synthesize domain = _domain, code = _code,
            localizedDescription = _localizedDescription;

- (void)dealloc {
  [_domain release];
  [_localizedDescription release];
  [super dealloc];
}

GETTER(NSString *, description, _localizedDescription)

@end

namespace mps_emulator {

NSError *MakeError(NSErrorDomain domain, NSInteger code,
                   const std::string &text) {
  NSError *error = [[[NSError alloc] init] autorelease];
  error->_domain = [domain copy];
  error->_code = code;
  error->_localizedDescription = [ToNSString(text) copy];
  return error;
}

}  // namespace mps_emulator
