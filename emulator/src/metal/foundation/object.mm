// NSObject and NSAutoreleasePool of include/Foundation/Foundation.h.
#include <Foundation/Foundation.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "core/fatal.h"
#include "metal/runtime.h"

using mps_emulator::Fatal;

namespace {

// The header in front of every object.
struct Header {
  std::atomic<long> references;
  long padding;  // keeps the object aligned to 16
};

Header *HeaderOf(id object) { return reinterpret_cast<Header *>(object) - 1; }

const char *ClassName(id object) { return object_getClassName(object); }

thread_local NSAutoreleasePool *innermost_pool = nil;

using Objects = std::vector<id>;

Objects *ObjectsOf(void *objects) { return static_cast<Objects *>(objects); }

}  // namespace

@implementation NSObject

+ (void)initialize {
}

+ (instancetype)alloc {
  size_t size = class_getInstanceSize(self);
  Header *header = static_cast<Header *>(calloc(1, sizeof(Header) + size));
  if (!header) Fatal("out of memory: no %zu bytes left for an object", size);
  header->references = 1;
  id object = reinterpret_cast<id>(header + 1);
  object_setClass(object, self);
  return object;
}

+ (instancetype)allocWithZone:(NSZone *)zone {
  return [self alloc];
}

+ (instancetype)new {
  return [[self alloc] init];
}

- (instancetype)init {
  return self;
}

- (void)dealloc {
  free(HeaderOf(self));
}

- (instancetype)retain {
  HeaderOf(self)->references.fetch_add(1, std::memory_order_relaxed);
  return self;
}

- (oneway void)release {
  long before =
      HeaderOf(self)->references.fetch_sub(1, std::memory_order_acq_rel);
  if (before == 1) [self dealloc];
}

- (instancetype)autorelease {
  [NSAutoreleasePool addObject:self];
  return self;
}

- (NSUInteger)retainCount {
  return static_cast<NSUInteger>(HeaderOf(self)->references.load());
}

// A class is an object too, and lives for ever.
+ (id)retain {
  return self;
}

+ (oneway void)release {
}

+ (id)autorelease {
  return self;
}

- (id)copy {
  return [static_cast<id<NSCopying>>(self) copyWithZone:nullptr];
}

- (instancetype)self {
  return self;
}

+ (Class)class {
  return self;
}

- (Class)class {
  return object_getClass(self);
}

+ (Class)superclass {
  return class_getSuperclass(self);
}

- (Class)superclass {
  return class_getSuperclass(object_getClass(self));
}

- (BOOL)isEqual:(id)object {
  return object == self;
}

- (NSUInteger)hash {
  return reinterpret_cast<NSUInteger>(self) >> 4;
}

- (BOOL)isKindOfClass:(Class)aClass {
  for (Class c = object_getClass(self); c; c = class_getSuperclass(c))
    if (c == aClass) return YES;
  return NO;
}

- (BOOL)isMemberOfClass:(Class)aClass {
  return object_getClass(self) == aClass;
}

+ (BOOL)instancesRespondToSelector:(SEL)aSelector {
  return class_respondsToSelector(self, aSelector);
}

- (BOOL)respondsToSelector:(SEL)aSelector {
  return class_respondsToSelector(object_getClass(self), aSelector);
}

+ (BOOL)conformsToProtocol:(Protocol *)aProtocol {
  const char *name = mps_emulator::NameOfProtocol(aProtocol);
  BOOL conforms = NO;
  for (Class c = self; c && !conforms; c = class_getSuperclass(c)) {
    unsigned int count = 0;
    Protocol **adopted = class_copyProtocolList(c, &count);
    for (unsigned int i = 0; i < count && !conforms; ++i)
      conforms = mps_emulator::ProtocolIsNamed(adopted[i], name);
    free(adopted);
  }
  return conforms;
}

- (BOOL)conformsToProtocol:(Protocol *)aProtocol {
  return [[self class] conformsToProtocol:aProtocol];
}

- (NSString *)description {
  return [NSString stringWithFormat:@"<%s: %p>", ClassName(self), self];
}

- (NSString *)debugDescription {
  return [self description];
}

- (void)doesNotRecognizeSelector:(SEL)aSelector {
  Fatal("%c[%s %s]: the object has no such method",
        class_isMetaClass(object_getClass(self)) ? '+' : '-', ClassName(self),
        sel_getName(aSelector));
}

@end

@implementation NSAutoreleasePool

- (instancetype)init {
  _objects = new Objects;
  _outer = innermost_pool;
  innermost_pool = self;
  return self;
}

// Without a pool nothing releases the object: a leak, as on a Mac.
+ (void)addObject:(id)anObject {
  [innermost_pool addObject:anObject];
}

- (void)addObject:(id)anObject {
  ObjectsOf(_objects)->push_back(anObject);
}

- (void)drain {
  [self release];
}

- (void)dealloc {
  // Drains inner pools too.
  while (innermost_pool != self && innermost_pool) [innermost_pool drain];
  // A release may autorelease further objects.
  Objects *objects = ObjectsOf(_objects);
  for (size_t i = 0; i < objects->size(); ++i) [(*objects)[i] release];
  delete objects;
  innermost_pool = _outer;
  [super dealloc];
}

@end

// clang calls these two functions for @autoreleasepool.
extern "C" __attribute__((visibility("default"))) void *
objc_autoreleasePoolPush() {
  return [[NSAutoreleasePool alloc] init];
}

extern "C" __attribute__((visibility("default"))) void objc_autoreleasePoolPop(
    void *pool) {
  [static_cast<NSAutoreleasePool *>(pool) drain];
}
