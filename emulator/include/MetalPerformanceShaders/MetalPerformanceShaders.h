// MetalPerformanceShaders, as far as torch's own headers mention it.
#pragma once

#include <Metal/Metal.h>

// A command buffer that can be committed and go on: it stands for a sequence
// of MTLCommandBuffers, the root being the one that is encoded at the moment.
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
