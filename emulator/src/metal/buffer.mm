// Implements MTLBuffer.  An id<MTLBuffer> is a handle (core/memory.h), an
// address at which there is no object.  objc_msg_lookup() in runtime.mm finds
// the methods below for handles.  In these methods, `self` is a handle, which a
// method must not dereference.
#include <Metal/Metal.h>
#include <objc/runtime.h>

#include <string>

#include "core/fatal.h"
#include "core/memory.h"
#include "core/residency.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;

namespace {

Class BufferClass() {
  // The class is looked up at the first use, because constructors of the
  // library may send messages before the runtime has registered the library's
  // classes.
  static Class buffer_class = objc_getClass("MPSEmulatorBuffer");
  return buffer_class;
}

}  // namespace

namespace mps_emulator {

IMP LookUpBufferMethod(id receiver, SEL selector) {
  if (!FindLiveBuffer(receiver))
    RequireLiveBuffer(
        receiver, (std::string("message -") + sel_getName(selector)).c_str());
  if (!class_respondsToSelector(BufferClass(), selector))
    Fatal("-[MTLBuffer %s]: the emulator's MTLBuffer has no such method",
          sel_getName(selector));
  return class_getMethodImplementation(BufferClass(), selector);
}

}  // namespace mps_emulator

@interface MPSEmulatorBuffer : NSObject <MTLBuffer>
@end

@implementation MPSEmulatorBuffer

- (instancetype)retain {
  RetainBuffer(FindBuffer(self));
  return self;
}

- (oneway void)release {
  ReleaseBuffer(FindBuffer(self));
}

GETTER(NSUInteger, retainCount,
       static_cast<NSUInteger>(FindBuffer(self)->references.load()))
GETTER(Class, class, BufferClass())

- (BOOL)isKindOfClass:(Class)aClass {
  return aClass == BufferClass() || aClass == [NSObject class];
}

- (void *)contents {
  Buffer *buffer = FindBuffer(self);
  return buffer->device_only ? nullptr : HostContents(buffer);
}

GETTER(NSUInteger, length, FindBuffer(self)->size)

GETTER(uint64_t, gpuAddress, GpuAddress(FindBuffer(self)))
GETTER(id<MTLDevice>, device, MTLCreateSystemDefaultDevice())
GETTER(MTLStorageMode, storageMode,
       FindBuffer(self)->device_only ? MTLStorageModePrivate
                                     : MTLStorageModeShared)
GETTER(MTLHazardTrackingMode, hazardTrackingMode,
       FindBuffer(self)->untracked ? MTLHazardTrackingModeUntracked
                                   : MTLHazardTrackingModeTracked)

- (NSString *)label {
  const std::string *label = FindBuffer(self)->label;
  return label ? ToNSString(*label) : nil;
}

- (void)setLabel:(NSString *)label {
  Buffer *buffer = FindBuffer(self);
  delete buffer->label;
  buffer->label = label ? new std::string(ToStdString(label)) : nullptr;
}

@end
