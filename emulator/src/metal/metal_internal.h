// The emulator's Metal classes, for its own Objective-C++ files.
#pragma once

#include <Metal/Metal.h>
#include <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>
#include <set>
#include <string>

#include "core/commands.h"
#include "core/memory.h"
#include "msl/msl.h"

namespace mps_emulator {

// The id<MTLBuffer> of a live buffer, without a new reference.
inline id<MTLBuffer> ToMTLBuffer(Buffer *buffer) {
  return reinterpret_cast<id<MTLBuffer>>(buffer->handle);
}

// The method for a message to an MTLBuffer handle.  Ends the program if
// `receiver` is no live buffer or has no such method.
IMP LookUpBufferMethod(id receiver, SEL selector);

// A new MTLCommandQueue object over `queue`, which must outlive it.
id<MTLCommandQueue> NewCommandQueueObject(CommandQueue *queue);

// The command buffer behind a Metal object of the emulator.
const std::shared_ptr<CommandBuffer> &CommandBufferOf(
    id<MTLCommandBuffer> object);

}  // namespace mps_emulator

// The members that almost all of Metal's objects have.
@interface MPSEmulatorObject : NSObject {
  NSString *_label;
}
@property(copy, atomic) NSString *label;
@property(readonly) id<MTLDevice> device;
@end

@interface MPSEmulatorFunction : MPSEmulatorObject <MTLFunction> {
 @public
  std::shared_ptr<const mps_emulator::msl::Library> *_library;
  const mps_emulator::msl::Kernel *_kernel;
}
- (instancetype)initWithLibrary:
                    (const std::shared_ptr<const mps_emulator::msl::Library> &)
                        library
                         kernel:(const mps_emulator::msl::Kernel *)kernel;
@end

@interface MPSEmulatorPipeline : MPSEmulatorObject <MTLComputePipelineState> {
 @public
  std::shared_ptr<const mps_emulator::msl::Library> *_library;
  const mps_emulator::msl::Kernel *_kernel;
  NSUInteger _maxTotalThreads;
}
- (instancetype)initWithFunction:(MPSEmulatorFunction *)function
                 maxTotalThreads:(NSUInteger)maxTotalThreads
                           label:(NSString *)label;
@end

@interface MPSEmulatorLibrary : MPSEmulatorObject <MTLLibrary> {
 @public
  std::shared_ptr<const mps_emulator::msl::Library> *_library;
}
// Returns nil, and an autoreleased error, if `source` does not compile.
+ (instancetype)newWithSource:(const std::string &)source
                     fastMath:(BOOL)fastMath
                        error:(NSError **)error;
@end

@interface MPSEmulatorFence : MPSEmulatorObject <MTLFence> {
 @public
  // The encoders whose work comes before a wait for the fence.  A pointer:
  // GCC's runtime does not call the constructors of C++ members.
  std::set<uint64_t> *_encoders;
}
@end

// MTLEvent.
@interface MPSEmulatorEvent : MPSEmulatorObject <MTLEvent> {
  void *_state;
}
// Called when a command buffer of `queue` will signal the event.
- (void)noteSignalFrom:(mps_emulator::CommandQueue *)queue;
// A command buffer of `queue` signals the event.
- (void)signal:(uint64_t)value from:(mps_emulator::CommandQueue *)queue;
// Waits until the event has reached `value`, and runs the work that signals it.
// The next commands of `queue` come after all commands before the signal.
- (void)reach:(uint64_t)value on:(mps_emulator::CommandQueue *)queue;
@end
