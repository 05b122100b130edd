// MTLCommandQueue, MTLCommandBuffer and MPSCommandBuffer.
#include <Metal/Metal.h>
#include <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/fatal.h"
#include "metal/encoders.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;

namespace {

std::mutex all_queues_mutex;
// Never shrinks: a queue outlives its object, and a program has few queues.
std::vector<CommandQueue *> all_queues;

}  // namespace

@interface MPSEmulatorCommandQueue : NSObject <MTLCommandQueue> {
 @public
  CommandQueue *_queue;
}
- (instancetype)initWithQueue:(CommandQueue *)queue;
@end

@interface MPSEmulatorCommandBuffer : NSObject <MTLCommandBuffer> {
 @public
  std::shared_ptr<CommandBuffer> *_buffer;
  MPSEmulatorCommandQueue *_queue;
}
- (instancetype)initWithQueue:(MPSEmulatorCommandQueue *)queue;
@end

namespace mps_emulator {

id<MTLCommandQueue> NewCommandQueueObject(CommandQueue *queue) {
  {
    std::lock_guard<std::mutex> lock(all_queues_mutex);
    all_queues.push_back(queue);
  }
  return [[MPSEmulatorCommandQueue alloc] initWithQueue:queue];
}

const std::shared_ptr<CommandBuffer> &CommandBufferOf(
    id<MTLCommandBuffer> object) {
  if ([object isKindOfClass:[MPSCommandBuffer class]])
    object = [(MPSCommandBuffer *)object rootCommandBuffer];
  return *((MPSEmulatorCommandBuffer *)object)->_buffer;
}

void LetDeviceProgress() {
  std::vector<CommandQueue *> queues;
  {
    std::lock_guard<std::mutex> lock(all_queues_mutex);
    queues = all_queues;
  }
  for (CommandQueue *queue : queues) queue->Run();
}

}  // namespace mps_emulator

@implementation MPSEmulatorCommandQueue

- (instancetype)initWithQueue:(CommandQueue *)queue {
  _queue = queue;
  return self;
}

- (id<MTLCommandBuffer>)commandBuffer {
  return [[[MPSEmulatorCommandBuffer alloc] initWithQueue:self] autorelease];
}

- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  MPSEmulatorCommandBuffer *buffer =
      (MPSEmulatorCommandBuffer *)[self commandBuffer];
  (*buffer->_buffer)->retains_references = false;
  return buffer;
}

- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}

- (NSString *)label {
  return ToNSString(_queue->label);
}

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

- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}

- (id<MTLCommandQueue>)commandQueue {
  return _queue;
}

- (BOOL)retainedReferences {
  return (*_buffer)->retains_references;
}

- (NSString *)label {
  return ToNSString((*_buffer)->label);
}

- (void)setLabel:(NSString *)label {
  (*_buffer)->label = ToStdString(label);
}

- (CFTimeInterval)kernelStartTime {
  return (*_buffer)->start_time();
}

- (CFTimeInterval)kernelEndTime {
  return (*_buffer)->end_time();
}

- (CFTimeInterval)GPUStartTime {
  return (*_buffer)->start_time();
}

- (CFTimeInterval)GPUEndTime {
  return (*_buffer)->end_time();
}

- (void)enqueue {
  (*_buffer)->Enqueue();
}

- (void)commit {
  (*_buffer)->Commit();
}

- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  MTLCommandBufferHandler copy = [block copy];
  [self retain];
  (*_buffer)->AddScheduledHandler([self, copy] {
    copy(self);
    [copy release];
    [self release];
  });
}

- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  MTLCommandBufferHandler copy = [block copy];
  [self retain];
  (*_buffer)->AddCompletedHandler([self, copy] {
    copy(self);
    [copy release];
    [self release];
  });
}

- (void)waitUntilScheduled {
  if (!(*_buffer)->committed())
    Fatal(
        "waitUntilScheduled: the command buffer was not committed, so on a Mac "
        "the wait never ends");
}

- (void)waitUntilCompleted {
  (*_buffer)->Wait();
}

// A program that asks for the status of a committed buffer may be polling, so
// the device runs after the first answer.
- (MTLCommandBufferStatus)status {
  MTLCommandBufferStatus status =
      static_cast<MTLCommandBufferStatus>((*_buffer)->status());
  if (status == MTLCommandBufferStatusCommitted) (*_buffer)->Wait();
  return status;
}

- (NSError *)error {
  return nil;
}

- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  return NewBlitEncoder(*_buffer);
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return NewComputeEncoder(*_buffer, MTLDispatchTypeSerial);
}

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

- (void)pushDebugGroup:(NSString *)string {
}

- (void)popDebugGroup {
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

- (id<MTLCommandBuffer>)commandBuffer {
  return _rootCommandBuffer;
}

- (id<MTLCommandBuffer>)rootCommandBuffer {
  return _rootCommandBuffer;
}

- (void)commitAndContinue {
  [_rootCommandBuffer commit];
  id<MTLCommandBuffer> next = [[_rootCommandBuffer commandQueue] commandBuffer];
  [next setLabel:[_rootCommandBuffer label]];
  Assign(&_rootCommandBuffer, next);
}

// All other messages go to the root.
#define FORWARD(type, method)           \
  -(type)method {                       \
    return [_rootCommandBuffer method]; \
  }
FORWARD(id<MTLDevice>, device)
FORWARD(id<MTLCommandQueue>, commandQueue)
FORWARD(BOOL, retainedReferences)
FORWARD(NSString *, label)
FORWARD(CFTimeInterval, kernelStartTime)
FORWARD(CFTimeInterval, kernelEndTime)
FORWARD(CFTimeInterval, GPUStartTime)
FORWARD(CFTimeInterval, GPUEndTime)
FORWARD(void, enqueue)
FORWARD(void, commit)
FORWARD(void, waitUntilScheduled)
FORWARD(void, waitUntilCompleted)
FORWARD(MTLCommandBufferStatus, status)
FORWARD(NSError *, error)
FORWARD(id<MTLBlitCommandEncoder>, blitCommandEncoder)
FORWARD(id<MTLComputeCommandEncoder>, computeCommandEncoder)
#undef FORWARD

- (void)setLabel:(NSString *)label {
  [_rootCommandBuffer setLabel:label];
}

- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  [_rootCommandBuffer addScheduledHandler:block];
}

- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  [_rootCommandBuffer addCompletedHandler:block];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:
    (MTLDispatchType)dispatchType {
  return
      [_rootCommandBuffer computeCommandEncoderWithDispatchType:dispatchType];
}

- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [_rootCommandBuffer encodeWaitForEvent:event value:value];
}

- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [_rootCommandBuffer encodeSignalEvent:event value:value];
}

- (void)pushDebugGroup:(NSString *)string {
}

- (void)popDebugGroup {
}

@end
