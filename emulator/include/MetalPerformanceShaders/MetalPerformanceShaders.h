// The one class of MetalPerformanceShaders that torch's stream has.
#pragma once

#include <Metal/Metal.h>

// A command buffer that continues after a commit: it stands for a sequence of
// MTLCommandBuffers, of which the root is the open one.
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
