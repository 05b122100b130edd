// MTLCommandQueue, MTLCommandBuffer and MPSCommandBuffer.
#include <Block.h>
#include <Metal/Metal.h>
#include <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include "metal/encoders.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;

@interface MPSEmulatorCommandQueue : MPSEmulatorObject <MTLCommandQueue> {
 @public
  CommandQueue *_queue;
}
- (instancetype)initWithQueue:(CommandQueue *)queue;
@end

@interface MPSEmulatorCommandBuffer : MPSEmulatorObject <MTLCommandBuffer> {
 @public
  std::shared_ptr<CommandBuffer> *_buffer;
  MPSEmulatorCommandQueue *_queue;
}
- (instancetype)initWithQueue:(MPSEmulatorCommandQueue *)queue;
@end

namespace mps_emulator {

id<MTLCommandQueue> NewCommandQueueObject(CommandQueue *queue) {
  return [[MPSEmulatorCommandQueue alloc] initWithQueue:queue];
}

const std::shared_ptr<CommandBuffer> &CommandBufferOf(
    id<MTLCommandBuffer> object) {
  if ([object isKindOfClass:[MPSCommandBuffer class]])
    object = [(MPSCommandBuffer *)object rootCommandBuffer];
  return *((MPSEmulatorCommandBuffer *)object)->_buffer;
}

}  // namespace mps_emulator

@implementation MPSEmulatorCommandQueue

- (instancetype)initWithQueue:(CommandQueue *)queue {
  _queue = queue;
  return self;
}

GETTER(id<MTLCommandBuffer>, commandBuffer,
       [[[MPSEmulatorCommandBuffer alloc] initWithQueue:self] autorelease])

- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  MPSEmulatorCommandBuffer *buffer =
      (MPSEmulatorCommandBuffer *)[self commandBuffer];
  (*buffer->_buffer)->retains_references = false;
  return buffer;
}

GETTER(NSString *, label, ToNSString(_queue->label))

- (void)setLabel:(NSString *)label {
  _queue->label = ToStdString(label);
}

@end

@implementation MPSEmulatorCommandBuffer

- (instancetype)initWithQueue:(MPSEmulatorCommandQueue *)queue {
  _buffer = new std::shared_ptr<CommandBuffer>(
      std::make_shared<CommandBuffer>(queue->_queue));
  _queue = [queue retain];
  return self;
}

- (void)dealloc {
  delete _buffer;
  [_queue release];
  [super dealloc];
}

GETTER(id<MTLCommandQueue>, commandQueue, _queue)
GETTER(NSString *, label, ToNSString((*_buffer)->label))

- (void)setLabel:(NSString *)label {
  (*_buffer)->label = ToStdString(label);
}

- (void)commit {
  (*_buffer)->Commit();
}

- (CommandBuffer::Handler)handlerOf:(MTLCommandBufferHandler)block {
  MTLCommandBufferHandler copy = Block_copy(block);
  [self retain];
  return [self, copy] {
    copy(self);
    Block_release(copy);
    [self release];
  };
}

- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  (*_buffer)->AddCompletedHandler([self handlerOf:block]);
}

- (void)waitUntilCompleted {
  (*_buffer)->Wait();
}

// Returns the status.  If the status is `committed`, this method then runs the
// commands, because the program may be polling the status until the command
// buffer has completed.
- (MTLCommandBufferStatus)status {
  MTLCommandBufferStatus status =
      static_cast<MTLCommandBufferStatus>((*_buffer)->status());
  if (status == MTLCommandBufferStatusCommitted) (*_buffer)->Wait();
  return status;
}

- (NSError *)error {
  if ((*_buffer)->status() != CommandBuffer::Status::kError) return nil;
  return MakeError(@"MTLCommandBufferErrorDomain", kTimeout, kTimeoutText);
}

GETTER(CFTimeInterval, GPUStartTime, (*_buffer)->start_time())
GETTER(CFTimeInterval, GPUEndTime, (*_buffer)->end_time())
GETTER(id<MTLBlitCommandEncoder>, blitCommandEncoder, NewBlitEncoder(*_buffer))
GETTER(id<MTLComputeCommandEncoder>, computeCommandEncoder,
       NewComputeEncoder(*_buffer, MTLDispatchTypeSerial))

- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:
    (MTLDispatchType)dispatchType {
  return NewComputeEncoder(*_buffer, dispatchType);
}

- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  (*_buffer)->OpenEncoder("encodeWaitForEvent:value:");
  (*_buffer)->CloseEncoder();
  MPSEmulatorEvent *waited = [(MPSEmulatorEvent *)event retain];
  CommandQueue *queue = _queue->_queue;
  (*_buffer)->Encode({"encodeWaitForEvent:value:", {}, [=](char *const *) {
                        [waited reach:value on:queue];
                        [waited release];
                      }});
}

- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  (*_buffer)->OpenEncoder("encodeSignalEvent:value:");
  (*_buffer)->CloseEncoder();
  MPSEmulatorEvent *signaled = [(MPSEmulatorEvent *)event retain];
  CommandQueue *queue = _queue->_queue;
  [signaled noteSignalFrom:queue];
  (*_buffer)->Encode({"encodeSignalEvent:value:", {}, [=](char *const *) {
                        [signaled signal:value from:queue];
                        [signaled release];
                      }});
}

@end

@implementation MPSCommandBuffer

+ (instancetype)commandBufferFromCommandQueue:
    (id<MTLCommandQueue>)commandQueue {
  return [self commandBufferWithCommandBuffer:[commandQueue commandBuffer]];
}

+ (instancetype)commandBufferWithCommandBuffer:
    (id<MTLCommandBuffer>)commandBuffer {
  return [[[self alloc] initWithCommandBuffer:commandBuffer] autorelease];
}

- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  _rootCommandBuffer = [commandBuffer retain];
  return self;
}

- (void)dealloc {
  [_rootCommandBuffer release];
  [super dealloc];
}

GETTER(id<MTLCommandBuffer>, commandBuffer, _rootCommandBuffer)
GETTER(id<MTLCommandBuffer>, rootCommandBuffer, _rootCommandBuffer)

- (void)commitAndContinue {
  [_rootCommandBuffer commit];
  id<MTLCommandBuffer> next = [[_rootCommandBuffer commandQueue] commandBuffer];
  [next setLabel:[_rootCommandBuffer label]];
  Assign(&_rootCommandBuffer, next);
}

// MPSCommandBuffer passes all other messages to its root command buffer.
#define FORWARD(type, method)           \
  -(type)method {                       \
    return [_rootCommandBuffer method]; \
  }
FORWARD(id<MTLDevice>, device)
FORWARD(id<MTLCommandQueue>, commandQueue)
FORWARD(NSString *, label)
FORWARD(void, commit)
FORWARD(void, waitUntilCompleted)
FORWARD(MTLCommandBufferStatus, status)
FORWARD(NSError *, error)
FORWARD(CFTimeInterval, GPUStartTime)
FORWARD(CFTimeInterval, GPUEndTime)
FORWARD(id<MTLBlitCommandEncoder>, blitCommandEncoder)
FORWARD(id<MTLComputeCommandEncoder>, computeCommandEncoder)
#undef FORWARD
#define FORWARD(type, name, argument)       \
  -(type)name : (argument)given {           \
    return [_rootCommandBuffer name:given]; \
  }
FORWARD(void, setLabel, NSString *)
FORWARD(void, addCompletedHandler, MTLCommandBufferHandler)
FORWARD(id<MTLComputeCommandEncoder>, computeCommandEncoderWithDispatchType,
        MTLDispatchType)
#undef FORWARD

- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [_rootCommandBuffer encodeWaitForEvent:event value:value];
}

- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [_rootCommandBuffer encodeSignalEvent:event value:value];
}

@end
