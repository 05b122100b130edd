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

// Returns the id<MTLBuffer> of a live buffer, without a new reference.
inline id<MTLBuffer> ToMTLBuffer(Buffer *buffer) {
  return reinterpret_cast<id<MTLBuffer>>(buffer->handle);
}

// Returns the method for a message to an MTLBuffer handle.  Ends the program if
// `receiver` is not a live buffer, or if MTLBuffer has no such method.
IMP LookUpBufferMethod(id receiver, SEL selector);

// Returns a new MTLCommandQueue object for `queue`.  `queue` must live longer
// than the object.
id<MTLCommandQueue> NewCommandQueueObject(CommandQueue *queue);

// Returns the CommandBuffer that `object` represents.
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

// A library has been compiled from a source, or from a .metallib.  A kernel of
// a .metallib is compiled when the program asks for its function.
@interface MPSEmulatorLibrary : MPSEmulatorObject <MTLLibrary> {
 @public
  std::shared_ptr<const mps_emulator::msl::Library> *_library;    // or null
  std::shared_ptr<const mps_emulator::msl::Metallib> *_metallib;  // or null
}
// Returns nil, and an autoreleased error, if `source` does not compile.
+ (instancetype)newWithSource:(const std::string &)source
                     fastMath:(BOOL)fastMath
                        error:(NSError **)error;
// Returns nil, and an autoreleased error, if `content` is no .metallib.
+ (instancetype)newWithMetallib:(std::string_view)content
                          error:(NSError **)error;
@end

@interface MPSEmulatorFence : MPSEmulatorObject <MTLFence> {
 @public
  // The encoders whose work is ordered before a wait for the fence.  The member
  // is a pointer, because GCC's runtime does not call constructors of C++
  // members.
  std::set<uint64_t> *_encoders;
}
@end

// MTLEvent.
@interface MPSEmulatorEvent : MPSEmulatorObject <MTLEvent> {
  void *_state;
}
// Notes that a command buffer of `queue` will signal the event.
- (void)noteSignalFrom:(mps_emulator::CommandQueue *)queue;
// Signals the event from a command buffer of `queue`.
- (void)signal:(uint64_t)value from:(mps_emulator::CommandQueue *)queue;
// Runs the work that signals `value`, and waits until the event has reached
// `value`.  The next commands of `queue` are ordered after all commands before
// the signal.
- (void)reach:(uint64_t)value on:(mps_emulator::CommandQueue *)queue;
@end
