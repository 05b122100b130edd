// NSObject and NSAutoreleasePool of include/Foundation/Foundation.h.
#include <Foundation/Foundation.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "core/counters.h"
#include "core/fatal.h"
#include "metal/foundation_internal.h"

using mps_emulator::Fatal;

namespace {

// The header before each object in memory.
struct Header {
  std::atomic<long> references;
  long padding;  // keeps the object aligned to 16
};

Header *HeaderOf(id object) { return reinterpret_cast<Header *>(object) - 1; }

thread_local NSAutoreleasePool *innermost_pool = nil;

std::vector<id> *PoolOf(void *objects) {
  return static_cast<std::vector<id> *>(objects);
}

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

+ (instancetype)new {
  return [[self alloc] init];
}

GETTER(instancetype, init, self)

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

GETTER(NSUInteger, retainCount,
       static_cast<NSUInteger>(HeaderOf(self)->references.load()))

// A class is an object too, and is never freed.
+ (id)retain {
  return self;
}

+ (oneway void)release {
}

+ (id)autorelease {
  return self;
}

GETTER(Class, class, object_getClass(self))

+ (Class)class {
  return self;
}

- (BOOL)isKindOfClass:(Class)aClass {
  for (Class c = object_getClass(self); c; c = class_getSuperclass(c))
    if (c == aClass) return YES;
  return NO;
}

- (void)doesNotRecognizeSelector:(SEL)aSelector {
  Fatal("%c[%s %s]: the object has no such method",
        class_isMetaClass(object_getClass(self)) ? '+' : '-',
        object_getClassName(self), sel_getName(aSelector));
}

@end

@implementation NSAutoreleasePool

- (instancetype)init {
  _objects = new std::vector<id>;
  _outer = innermost_pool;
  innermost_pool = self;
  return self;
}

// If there is no pool, nothing releases the object: the object leaks, as on a
// Mac.
+ (void)addObject:(id)anObject {
  if (!innermost_pool) mps_emulator::Count(mps_emulator::kAutoreleaseLeaks);
  [innermost_pool addObject:anObject];
}

- (void)addObject:(id)anObject {
  PoolOf(_objects)->push_back(anObject);
}

- (void)drain {
  [self release];
}

- (void)dealloc {
  // Also drains the pools that were opened inside this pool and are still open.
  while (innermost_pool != self && innermost_pool) [innermost_pool drain];
  // A release may add further objects to this pool.
  std::vector<id> *objects = PoolOf(_objects);
  for (size_t i = 0; i < objects->size(); ++i) [(*objects)[i] release];
  delete objects;
  innermost_pool = _outer;
  [super dealloc];
}

@end

// The code that clang makes for @autoreleasepool calls these two functions.
extern "C" __attribute__((visibility("default"))) void *
objc_autoreleasePoolPush() {
  return [[NSAutoreleasePool alloc] init];
}

extern "C" __attribute__((visibility("default"))) void objc_autoreleasePoolPop(
    void *pool) {
  [static_cast<NSAutoreleasePool *>(pool) drain];
}
