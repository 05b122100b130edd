// The part of Foundation that Metal programs use, with Apple's selectors and
// types.  The classes use GCC's Objective-C runtime, with manual retain and
// release, because clang has no ARC for this runtime.
#pragma once

#if !defined(__OBJC__) || !defined(__cplusplus)
#error "Foundation needs Objective-C++: a .mm file, or -x objective-c++"
#endif
#if __has_feature(objc_arc)
#error "mps-emulator has no ARC: compile without -fobjc-arc"
#endif

#include <dispatch/dispatch.h>
#include <limits.h>
#include <objc/objc.h>
#include <objc/runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

// ---- from <time.h>, <Availability.h> and <AvailabilityVersions.h> of the
// macOS 15 SDK.  The emulated system is macOS 15.2.  Programs are compiled for
// macOS 14 and newer.
#define __MAC_15_0 150000
#define __MAC_OS_X_VERSION_MAX_ALLOWED 150200
#define __MAC_OS_X_VERSION_MIN_REQUIRED 140000
#define API_AVAILABLE(...)
#define API_DEPRECATED(...)
static inline uint64_t clock_gettime_nsec_np(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// As in Apple's objc.h, nil in C++ is nullptr, which converts to every pointer
// type.  In GCC's objc.h, nil has the type id.
#undef nil
#undef Nil
#define nil nullptr
#define Nil nullptr

// ---- NSObjCRuntime.h
typedef long NSInteger;
typedef unsigned long NSUInteger;
typedef double CFTimeInterval;  // seconds
#define NSUIntegerMax ULONG_MAX

#define NS_ENUM(type, name) \
  enum name : type name;    \
  enum name : type
// In C++, `name` is an alias of `type`, so that options can be combined.
#define NS_OPTIONS(type, name) \
  type name;                   \
  enum : type
#define NS_RETURNS_INNER_POINTER

#define FOUNDATION_EXPORT extern "C" __attribute__((visibility("default")))

// The emulator library exports the classes.
#define MPS_EMULATOR_CLASS __attribute__((visibility("default")))

typedef struct _NSZone NSZone;

@class NSDictionary<KeyType, ObjectType>;  // for torch's headers
@class NSString;

// ---- NSObject.h
@protocol NSObject
- (Class)class;
- (BOOL)isKindOfClass:(Class)aClass;
- (instancetype)retain;
- (oneway void)release;
- (instancetype)autorelease;
- (NSUInteger)retainCount;
@end

@protocol NSCopying
- (id)copyWithZone:(NSZone *)zone;
@end

// The reference count is stored before the object's first byte, and not in a
// member.  So NSConstantString, a subclass, has only the members that the
// compiler expects.
MPS_EMULATOR_CLASS __attribute__((objc_root_class))
@interface NSObject<NSObject> {
  Class isa;
}
+ (void)initialize;
- (instancetype)init;
+ (instancetype)new;
+ (instancetype)alloc;
- (void)dealloc;
+ (Class)class;
- (void)doesNotRecognizeSelector:(SEL)aSelector;
@end

// ---- NSAutoreleasePool.h
MPS_EMULATOR_CLASS
@interface NSAutoreleasePool : NSObject {
  void *_objects;
  NSAutoreleasePool *_outer;
}
+ (void)addObject:(id)anObject;
- (void)addObject:(id)anObject;
- (void)drain;
@end

// ---- NSError.h
typedef NSString *NSErrorDomain;

MPS_EMULATOR_CLASS
@interface NSError : NSObject {
 @public
  NSString *_domain;
  NSInteger _code;
  NSString *_localizedDescription;
}
@property(readonly, copy) NSErrorDomain domain;
@property(readonly) NSInteger code;
@property(readonly, copy) NSString *localizedDescription;
@end

// ---- NSString.h; a string is stored as UTF-8
MPS_EMULATOR_CLASS
@interface NSString : NSObject <NSCopying>
@property(readonly) const char *UTF8String;
+ (instancetype)stringWithUTF8String:(const char *)nullTerminatedCString;
- (instancetype)initWithUTF8String:(const char *)nullTerminatedCString;
- (BOOL)isEqualToString:(NSString *)aString;
@end

// The class of string literals, @"...".
MPS_EMULATOR_CLASS
@interface NSConstantString : NSString {
  const char *_bytes;
  unsigned int _length;
}
@end
