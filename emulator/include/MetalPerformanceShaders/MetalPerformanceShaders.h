// MPSCommandBuffer, the only class of MetalPerformanceShaders that torch's
// stream uses.
#pragma once

#include <Metal/Metal.h>

// A command buffer that a program can commit several times.  An
// MPSCommandBuffer represents a sequence of MTLCommandBuffers.
// rootCommandBuffer is the MTLCommandBuffer that is open for encoding.
MPS_EMULATOR_CLASS
@interface MPSCommandBuffer : NSObject <MTLCommandBuffer> {
  id<MTLCommandBuffer> _rootCommandBuffer;
}
@property(readonly, nonatomic) id<MTLCommandBuffer> commandBuffer;
@property(readonly, nonatomic) id<MTLCommandBuffer> rootCommandBuffer;
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)commandQueue;
+ (instancetype)commandBufferWithCommandBuffer:
    (id<MTLCommandBuffer>)commandBuffer;
- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;
- (void)commitAndContinue;
@end
