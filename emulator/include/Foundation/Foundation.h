// The part of Foundation that Metal programs use, with Apple's selectors and
// types.  The classes are over GCC's Objective-C runtime, with manual retain
// and release: clang has no ARC for this runtime.
#pragma once

#ifndef __OBJC__
#error "Foundation needs Objective-C: a .mm file, or clang -x objective-c++"
#endif
#if __has_feature(objc_arc)
#error "mps-emulator has no ARC: compile without -fobjc-arc"
#endif

#include <dispatch/dispatch.h>
#include <limits.h>
#include <objc/objc.h>
#include <objc/runtime.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

// ---- from <time.h> and <AvailabilityVersions.h> of the macOS 15 SDK
#define __MAC_15_0 150000
static inline uint64_t clock_gettime_nsec_np(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// As in Apple's objc.h: in C++ nil is a null of any pointer type, not of type
// id.
#ifdef __cplusplus
#undef nil
#undef Nil
#define nil nullptr
#define Nil nullptr
#endif

// ---- NSObjCRuntime.h
typedef long NSInteger;
typedef unsigned long NSUInteger;
#define NSIntegerMax LONG_MAX
#define NSUIntegerMax ULONG_MAX
#define NSNotFound ((NSInteger)0x7fffffffffffffff)

#define NS_ENUM(type, name) \
  enum name : type name;    \
  enum name : type
// In C++ the name is the integer itself, so that options can be combined.
#ifdef __cplusplus
#define NS_OPTIONS(type, name) \
  type name;                   \
  enum : type
#else
#define NS_OPTIONS(type, name) \
  enum name : type name;       \
  enum name : type
#endif
#define NS_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define NS_ASSUME_NONNULL_END _Pragma("clang assume_nonnull end")
#define NS_RETURNS_RETAINED __attribute__((ns_returns_retained))
#define NS_RETURNS_INNER_POINTER
#define NS_FORMAT_FUNCTION(format, first)
#define NS_AVAILABLE(...)
#define NS_DESIGNATED_INITIALIZER
#define NS_REQUIRES_NIL_TERMINATION __attribute__((sentinel(0, 1)))
#define API_AVAILABLE(...)
#define API_DEPRECATED(...)
#define API_DEPRECATED_WITH_REPLACEMENT(...)
#define API_UNAVAILABLE(...)

#ifdef __cplusplus
#define FOUNDATION_EXTERN extern "C" __attribute__((visibility("default")))
#else
#define FOUNDATION_EXTERN extern __attribute__((visibility("default")))
#endif
#define FOUNDATION_EXPORT FOUNDATION_EXTERN

// The classes are part of the emulator library's interface.
#define MPS_EMULATOR_CLASS __attribute__((visibility("default")))

typedef NS_ENUM(NSInteger, NSComparisonResult) {
  NSOrderedAscending = -1L,
  NSOrderedSame,
  NSOrderedDescending
};

typedef struct _NSRange {
  NSUInteger location;
  NSUInteger length;
} NSRange;

static inline NSRange NSMakeRange(NSUInteger location, NSUInteger length) {
  NSRange range = {location, length};
  return range;
}

typedef double NSTimeInterval;
typedef double CFTimeInterval;
typedef struct _NSZone NSZone;

@class NSArray<ObjectType>;
@class NSDictionary<KeyType, ObjectType>;
@class NSString;

// ---- NSObject.h
@protocol NSObject
- (BOOL)isEqual:(id)object;
@property(readonly) NSUInteger hash;
@property(readonly) Class superclass;
- (Class)class;
- (instancetype)self;
- (BOOL)isKindOfClass:(Class)aClass;
- (BOOL)isMemberOfClass:(Class)aClass;
- (BOOL)conformsToProtocol:(Protocol *)aProtocol;
- (BOOL)respondsToSelector:(SEL)aSelector;
- (instancetype)retain;
- (oneway void)release;
- (instancetype)autorelease;
- (NSUInteger)retainCount;
@property(readonly, copy) NSString *description;
@property(readonly, copy) NSString *debugDescription;
@end

@protocol NSCopying
- (id)copyWithZone:(NSZone *)zone;
@end

// The reference count is in front of the object, so that a subclass can have a
// layout of the compiler (NSConstantString).
MPS_EMULATOR_CLASS __attribute__((objc_root_class))
@interface NSObject<NSObject> {
  Class isa;
}
+ (void)initialize;
- (instancetype)init;
+ (instancetype)new;
+ (instancetype)alloc;
+ (instancetype)allocWithZone:(NSZone *)zone;
- (void)dealloc;
- (id)copy;
+ (Class)superclass;
+ (Class)class;
+ (BOOL)instancesRespondToSelector:(SEL)aSelector;
+ (BOOL)conformsToProtocol:(Protocol *)aProtocol;
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

// ---- NSEnumerator.h
typedef struct {
  unsigned long state;
  id *itemsPtr;
  unsigned long *mutationsPtr;
  unsigned long extra[5];
} NSFastEnumerationState;

@protocol NSFastEnumeration
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)state
                                  objects:(id *)buffer
                                    count:(NSUInteger)len;
@end

// ---- NSError.h
typedef NSString *NSErrorDomain;
typedef NSString *NSErrorUserInfoKey;
FOUNDATION_EXPORT NSErrorUserInfoKey const NSLocalizedDescriptionKey;

MPS_EMULATOR_CLASS
@interface NSError : NSObject <NSCopying> {
  NSString *_domain;
  NSInteger _code;
  NSDictionary *_userInfo;
}
- (instancetype)initWithDomain:(NSErrorDomain)domain
                          code:(NSInteger)code
                      userInfo:(NSDictionary *)dict;
+ (instancetype)errorWithDomain:(NSErrorDomain)domain
                           code:(NSInteger)code
                       userInfo:(NSDictionary *)dict;
@property(readonly, copy) NSErrorDomain domain;
@property(readonly) NSInteger code;
@property(readonly, copy) NSDictionary *userInfo;
@property(readonly, copy) NSString *localizedDescription;
@end

// ---- NSString.h; every string is UTF-8 inside
typedef unsigned short unichar;
typedef NSUInteger NSStringEncoding;
enum {
  NSASCIIStringEncoding = 1,
  NSUTF8StringEncoding = 4,
};

MPS_EMULATOR_CLASS
@interface NSString : NSObject <NSCopying>
@property(readonly) NSUInteger length;
- (unichar)characterAtIndex:(NSUInteger)index;
@property(readonly) const char *UTF8String;
- (const char *)cStringUsingEncoding:(NSStringEncoding)encoding;
- (NSUInteger)lengthOfBytesUsingEncoding:(NSStringEncoding)enc;

+ (instancetype)string;
+ (instancetype)stringWithString:(NSString *)string;
+ (instancetype)stringWithUTF8String:(const char *)nullTerminatedCString;
+ (instancetype)stringWithCString:(const char *)cString
                         encoding:(NSStringEncoding)enc;
+ (instancetype)stringWithFormat:(NSString *)format, ...;
+ (instancetype)stringWithContentsOfFile:(NSString *)path
                                encoding:(NSStringEncoding)enc
                                   error:(NSError **)error;
- (instancetype)initWithUTF8String:(const char *)nullTerminatedCString;
- (instancetype)initWithBytes:(const void *)bytes
                       length:(NSUInteger)len
                     encoding:(NSStringEncoding)encoding;
- (instancetype)initWithFormat:(NSString *)format, ...;
- (instancetype)initWithFormat:(NSString *)format arguments:(va_list)argList;

- (NSString *)stringByAppendingString:(NSString *)aString;
- (NSString *)stringByAppendingFormat:(NSString *)format, ...;
- (BOOL)isEqualToString:(NSString *)aString;
- (NSComparisonResult)compare:(NSString *)string;
- (BOOL)hasPrefix:(NSString *)str;
- (BOOL)hasSuffix:(NSString *)str;
- (BOOL)containsString:(NSString *)str;
@property(readonly) int intValue;
@property(readonly) double doubleValue;
@end

// The class of @"...".
MPS_EMULATOR_CLASS
@interface NSConstantString : NSString {
  const char *_bytes;
  unsigned int _length;
}
@end

FOUNDATION_EXPORT void NSLog(NSString *format, ...);

// ---- NSValue.h
MPS_EMULATOR_CLASS
@interface NSNumber : NSObject <NSCopying> {
  double _double;
  long long _integer;
  char _kind;  // 'd' double, 'q' signed, 'Q' unsigned, 'B' boolean
}
+ (NSNumber *)numberWithChar:(char)value;
+ (NSNumber *)numberWithUnsignedChar:(unsigned char)value;
+ (NSNumber *)numberWithShort:(short)value;
+ (NSNumber *)numberWithUnsignedShort:(unsigned short)value;
+ (NSNumber *)numberWithInt:(int)value;
+ (NSNumber *)numberWithUnsignedInt:(unsigned int)value;
+ (NSNumber *)numberWithLong:(long)value;
+ (NSNumber *)numberWithUnsignedLong:(unsigned long)value;
+ (NSNumber *)numberWithLongLong:(long long)value;
+ (NSNumber *)numberWithUnsignedLongLong:(unsigned long long)value;
+ (NSNumber *)numberWithFloat:(float)value;
+ (NSNumber *)numberWithDouble:(double)value;
+ (NSNumber *)numberWithBool:(BOOL)value;
+ (NSNumber *)numberWithInteger:(NSInteger)value;
+ (NSNumber *)numberWithUnsignedInteger:(NSUInteger)value;
@property(readonly) int intValue;
@property(readonly) unsigned int unsignedIntValue;
@property(readonly) long longValue;
@property(readonly) unsigned long unsignedLongValue;
@property(readonly) long long longLongValue;
@property(readonly) unsigned long long unsignedLongLongValue;
@property(readonly) float floatValue;
@property(readonly) double doubleValue;
@property(readonly) BOOL boolValue;
@property(readonly) NSInteger integerValue;
@property(readonly) NSUInteger unsignedIntegerValue;
@property(readonly, copy) NSString *stringValue;
@end

// ---- NSArray.h
MPS_EMULATOR_CLASS
@interface NSArray<__covariant ObjectType>
    : NSObject <NSCopying, NSFastEnumeration> {
  void *_objects;
}
@property(readonly) NSUInteger count;
- (ObjectType)objectAtIndex:(NSUInteger)index;
- (ObjectType)objectAtIndexedSubscript:(NSUInteger)idx;
@property(nonatomic, readonly) ObjectType firstObject;
@property(nonatomic, readonly) ObjectType lastObject;
- (BOOL)containsObject:(ObjectType)anObject;
- (NSUInteger)indexOfObject:(ObjectType)anObject;
+ (instancetype)array;
+ (instancetype)arrayWithObject:(ObjectType)anObject;
+ (instancetype)arrayWithObjects:(const ObjectType[])objects
                           count:(NSUInteger)cnt;
+ (instancetype)arrayWithObjects:(ObjectType)firstObj,
                                 ... NS_REQUIRES_NIL_TERMINATION;
+ (instancetype)arrayWithArray:(NSArray<ObjectType> *)array;
- (instancetype)initWithObjects:(const ObjectType[])objects
                          count:(NSUInteger)cnt;
@end

MPS_EMULATOR_CLASS
@interface NSMutableArray<ObjectType> : NSArray <ObjectType>
+ (instancetype)arrayWithCapacity:(NSUInteger)numItems;
- (void)addObject:(ObjectType)anObject;
- (void)setObject:(ObjectType)obj atIndexedSubscript:(NSUInteger)idx;
- (void)removeLastObject;
- (void)removeAllObjects;
@end

// ---- NSDictionary.h
MPS_EMULATOR_CLASS
@interface NSDictionary<__covariant KeyType, __covariant ObjectType>
    : NSObject <NSCopying, NSFastEnumeration> {
  void *_entries;
}
@property(readonly) NSUInteger count;
- (ObjectType)objectForKey:(KeyType)aKey;
- (ObjectType)objectForKeyedSubscript:(KeyType)key;
@property(readonly, copy) NSArray<KeyType> *allKeys;
@property(readonly, copy) NSArray<ObjectType> *allValues;
+ (instancetype)dictionary;
+ (instancetype)dictionaryWithObject:(ObjectType)object forKey:(KeyType)key;
+ (instancetype)dictionaryWithObjects:(const ObjectType[])objects
                              forKeys:(const KeyType[])keys
                                count:(NSUInteger)cnt;
@end

MPS_EMULATOR_CLASS
@interface NSMutableDictionary<KeyType, ObjectType>
    : NSDictionary <KeyType, ObjectType>
- (void)setObject:(ObjectType)anObject forKey:(KeyType)aKey;
- (void)setObject:(ObjectType)obj forKeyedSubscript:(KeyType)key;
- (void)removeObjectForKey:(KeyType)aKey;
@end

// ---- NSURL.h, file paths only
MPS_EMULATOR_CLASS
@interface NSURL : NSObject {
  NSString *_path;
}
+ (NSURL *)fileURLWithPath:(NSString *)path;
@property(readonly, copy) NSString *path;
@end

// ---- NSProcessInfo.h
typedef struct {
  NSInteger majorVersion;
  NSInteger minorVersion;
  NSInteger patchVersion;
} NSOperatingSystemVersion;

MPS_EMULATOR_CLASS
@interface NSProcessInfo : NSObject
@property(class, readonly) NSProcessInfo *processInfo;
@property(readonly, copy) NSString *processName;
@property(readonly) int processIdentifier;
@property(readonly) unsigned long long physicalMemory;
// The version of the emulated macOS release.
@property(readonly) NSOperatingSystemVersion operatingSystemVersion;
- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)version;
@end
