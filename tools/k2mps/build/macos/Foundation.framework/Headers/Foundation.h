// Foundation, the little of it that k2's backend and torch/mps.h name: enough
// to compile them for macOS where Apple's SDK is not at hand.  Declarations
// only; the classes are those of the system that the wheel runs on.
#pragma once

#include <dispatch/dispatch.h>
#include <objc/NSObject.h>
#include <objc/objc.h>

typedef double CFTimeInterval;

@interface NSString : NSObject
+ (instancetype)stringWithUTF8String:(const char *)nullTerminatedCString;
@property(readonly) const char *UTF8String;
@end

@interface NSError : NSObject
@property(readonly, copy) NSString *localizedDescription;
@end
