// MTLDevice.
#include <Metal/Metal.h>
#include <string.h>

#include "core/fatal.h"
#include "core/limits.h"
#include "metal/dispatch_queue.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;

namespace {

MTLStorageMode StorageModeOf(MTLResourceOptions options) {
  return static_cast<MTLStorageMode>(options >> MTLResourceStorageModeShift &
                                     0xF);
}

void CheckBufferLength(NSUInteger length, const char *what) {
  if (length == 0 || length > kMaxBufferLength)
    Fatal("%s: a length of %lu bytes is outside 1 .. %lu", what, length,
          kMaxBufferLength);
}

}  // namespace

@implementation MPSEmulatorObject

@synthesize label = _label;

- (void)dealloc {
  [_label release];
  [super dealloc];
}

GETTER(id<MTLDevice>, device, MTLCreateSystemDefaultDevice())

@end

@interface MPSEmulatorDevice : NSObject <MTLDevice>
@end

@implementation MPSEmulatorDevice

GETTER(NSString *, name, @"Emulated Metal device")
GETTER(uint64_t, recommendedMaxWorkingSetSize, RecommendedMaxMemory())
GETTER(NSUInteger, currentAllocatedSize, GetMemoryStatistics().reserved)
GETTER(NSUInteger, maxBufferLength, kMaxBufferLength)

- (id<MTLCommandQueue>)newCommandQueue {
  // The queue is never freed, because its committed command buffers may have to
  // run after the object is gone.
  return NewCommandQueueObject(new CommandQueue);
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length
                             options:(MTLResourceOptions)options {
  CheckBufferLength(length, "newBufferWithLength:options:");
  Buffer *buffer = AllocateBuffer(length, Origin::kDevice);
  if (!buffer) return nil;
  buffer->device_only = StorageModeOf(options) == MTLStorageModePrivate;
  buffer->untracked = options & MTLResourceHazardTrackingModeUntracked;
  return ToMTLBuffer(buffer);
}

- (id<MTLBuffer>)newBufferWithBytes:(const void *)pointer
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options {
  CheckBufferLength(length, "newBufferWithBytes:length:options:");
  if (!pointer) Fatal("newBufferWithBytes:length:options: got NULL");
  if (StorageModeOf(options) == MTLStorageModePrivate)
    Fatal("newBufferWithBytes:length:options: private storage cannot be filled "
          "by the CPU");
  Buffer *buffer = AllocateBuffer(length, Origin::kDevice);
  if (!buffer) return nil;
  memcpy(HostContents(buffer), pointer, length);
  return ToMTLBuffer(buffer);
}

- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data
                               error:(NSError **)error {
  if (!data) Fatal("newLibraryWithData:error: the data is NULL");
  return [MPSEmulatorLibrary
      newWithMetallib:static_cast<DispatchData *>(FromHandle(data))->content
                error:error];
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                               options:(MTLCompileOptions *)options
                                 error:(NSError **)error {
  if (!source) Fatal("newLibraryWithSource:options:error: the source is nil");
  BOOL fast_math = !options || [options mathMode] != MTLMathModeSafe;
  return [MPSEmulatorLibrary newWithSource:ToStdString(source)
                                  fastMath:fast_math
                                     error:error];
}

- (id<MTLComputePipelineState>)
    newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                  error:(NSError **)error {
  if (!computeFunction)
    Fatal("newComputePipelineStateWithFunction:error: the function is nil; "
          "check the name that newFunctionWithName: got");
  if (error) *error = nil;
  return [[MPSEmulatorPipeline alloc]
      initWithFunction:(MPSEmulatorFunction *)computeFunction
       maxTotalThreads:0
                 label:nil];
}

- (id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:
        (MTLComputePipelineDescriptor *)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:
                                   (MTLAutoreleasedComputePipelineReflection *)
                                       reflection
                                    error:(NSError **)error {
  id<MTLFunction> function = [descriptor computeFunction];
  if (!function)
    Fatal("newComputePipelineStateWithDescriptor: computeFunction is nil");
  if (reflection) *reflection = nil;
  if (error) *error = nil;
  return [[MPSEmulatorPipeline alloc]
      initWithFunction:(MPSEmulatorFunction *)function
       maxTotalThreads:[descriptor maxTotalThreadsPerThreadgroup]
                 label:[descriptor label]];
}

GETTER(id<MTLFence>, newFence, [[MPSEmulatorFence alloc] init])
GETTER(id<MTLEvent>, newEvent, [[MPSEmulatorEvent alloc] init])

@end

// Returns a reference that the caller owns, as on a Mac.  The device is never
// freed.
id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  static id<MTLDevice> device = [[MPSEmulatorDevice alloc] init];
  return [device retain];
}
