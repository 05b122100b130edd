// The declarations of Foundation that k2's backend, torch/mps.h and Metal.h
// use.  So k2 compiles for macOS without Apple's SDK.  The classes themselves
// are in macOS, where the wheel runs.
#pragma once

#include <dispatch/dispatch.h>
#include <objc/NSObject.h>
#include <objc/objc.h>
#include <os/availability.h>

#define FOUNDATION_EXPORT extern "C"
#define NS_ENUM(type, name) \
  enum name : type name;    \
  enum name : type
#define NS_OPTIONS(type, name) \
  type name;                   \
  enum : type
#define NS_RETURNS_INNER_POINTER __attribute__((objc_returns_inner_pointer))
// The emulator's Metal.h puts this macro before its classes.  Here the macro
// is empty, because macOS defines the classes.
#define MPS_EMULATOR_CLASS

typedef double CFTimeInterval;

typedef struct {
  NSUInteger location, length;
} NSRange;

@protocol NSCopying
@end

@class NSURL;

@interface NSArray<ObjectType> : NSObject
@end

@interface NSDictionary<KeyType, ObjectType> : NSObject
@end

@interface NSString : NSObject <NSCopying>
+ (instancetype)stringWithUTF8String:(const char *)nullTerminatedCString;
@property(readonly) const char *UTF8String;
@end
typedef NSString *NSErrorDomain;

@interface NSError : NSObject
@property(readonly, copy) NSString *localizedDescription;
@end
