// Mistakes between commands: a race of two dispatches, of two queues or with
// the host, and uses of freed objects.  Each case also has a right form.
// test_commands.py has the emulator's messages.
#include "extension.h"

#include <ATen/ops/zeros.h>
#include <torch/mps.h>

#include <map>
#include <string>
#include <vector>

namespace {

const char *const kSource = R"(
#include <metal_stdlib>
using namespace metal;
kernel void increment(device float *x, uint i [[thread_position_in_grid]]) {
  x[i] += 1;
}
kernel void reverse(device const float *x, device float *y,
                    uint i [[thread_position_in_grid]]) {
  y[i] = x[63 - i];
}
kernel void through_threadgroup(device float *x, threadgroup float *s,
                                uint t [[thread_position_in_threadgroup]]) {
  s[t] = x[t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[t] = s[63 - t];
}
struct Arguments {
  device float *x;
};
kernel void increment_behind(constant Arguments &arguments,
                             uint i [[thread_position_in_grid]]) {
  arguments.x[i] += 1;
}
)";

id<MTLComputePipelineState> PipelineOf(NSString *kernel) {
  static id<MTLLibrary> library = [MetalDevice()
      newLibraryWithSource:[NSString stringWithUTF8String:kSource]
                   options:nil
                     error:nil];
  return [MetalDevice()
      newComputePipelineStateWithFunction:[library newFunctionWithName:kernel]
                                    error:nil];
}

at::Tensor OnMps() {
  at::Tensor tensor = at::zeros({64}, at::TensorOptions().device(at::kMPS));
  torch::mps::synchronize();
  return tensor;
}

void Encode(id<MTLComputeCommandEncoder> encoder, NSString *kernel,
            const std::vector<id<MTLBuffer>> &buffers) {
  [encoder setComputePipelineState:PipelineOf(kernel)];
  for (size_t i = 0; i < buffers.size(); ++i)
    [encoder setBuffer:buffers[i] offset:0 atIndex:i];
  [encoder dispatchThreads:MTLSizeMake(64, 1, 1)
      threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
}

void EncodeOn(id<MTLCommandBuffer> command_buffer, NSString *kernel,
              const std::vector<id<MTLBuffer>> &buffers) {
  id<MTLComputeCommandEncoder> encoder = [command_buffer computeCommandEncoder];
  Encode(encoder, kernel, buffers);
  [encoder endEncoding];
}

void ConcurrentDispatches(bool right) {
  at::Tensor x = OnMps(), y = OnMps();
  id<MTLCommandBuffer> buffer = StreamBuffer();
  id<MTLComputeCommandEncoder> encoder =
      [buffer computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
  Encode(encoder, @"increment", {BufferOf(x)});
  if (right) [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
  Encode(encoder, @"reverse", {BufferOf(x), BufferOf(y)});
  [encoder endEncoding];
  torch::mps::synchronize();
}

void ConcurrentDispatchesOfOthers(bool) {
  at::Tensor x = OnMps(), y = OnMps();
  id<MTLComputeCommandEncoder> encoder = [StreamBuffer()
      computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
  Encode(encoder, @"increment", {BufferOf(x)});
  Encode(encoder, @"increment", {BufferOf(y)});
  [encoder endEncoding];
  torch::mps::synchronize();
}

void OwnQueueReadsTorch(bool right) {
  at::Tensor x = OnMps(), y = OnMps();
  x.add_(41);
  if (right) torch::mps::synchronize();
  id<MTLCommandBuffer> buffer = [MetalQueue() commandBuffer];
  EncodeOn(buffer, @"reverse", {BufferOf(x), BufferOf(y)});
  [buffer commit];
  [buffer waitUntilCompleted];
}

void TorchReadsOwnQueue(bool right) {
  at::Tensor x = OnMps();
  id<MTLCommandBuffer> buffer = [MetalQueue() commandBuffer];
  EncodeOn(buffer, @"increment", {BufferOf(x)});
  [buffer commit];
  if (right) [buffer waitUntilCompleted];
  x.add(1);
}

void QueuesWithAnEvent(bool right) {
  at::Tensor x = OnMps(), y = OnMps();
  id<MTLEvent> event = [MetalDevice() newEvent];
  id<MTLCommandBuffer> first = StreamBuffer();
  EncodeOn(first, @"increment", {BufferOf(x)});
  [first encodeSignalEvent:event value:1];
  CommitStream();
  id<MTLCommandBuffer> second = [MetalQueue() commandBuffer];
  if (right) [second encodeWaitForEvent:event value:1];
  EncodeOn(second, @"reverse", {BufferOf(x), BufferOf(y)});
  [second commit];
  CommitStream();
  [second waitUntilCompleted];
}

// The second kernel's results come with the second signal.
void EventOfAnotherValue(bool right) {
  at::Tensor x = OnMps(), y = OnMps();
  id<MTLEvent> event = [MetalDevice() newEvent];
  for (uint64_t value : {1, 2}) {
    id<MTLCommandBuffer> first = StreamBuffer();
    EncodeOn(first, @"increment", {BufferOf(x)});
    [first encodeSignalEvent:event value:value];
    CommitStream();
  }
  id<MTLCommandBuffer> second = [MetalQueue() commandBuffer];
  [second encodeWaitForEvent:event value:right ? 2 : 1];
  EncodeOn(second, @"reverse", {BufferOf(x), BufferOf(y)});
  [second commit];
  [second waitUntilCompleted];
}

// Metal orders encoders by the buffers that they use, but not by such a buffer.
void BlitOfUntrackedBuffer(bool right) {
  NSUInteger untracked = MTLResourceHazardTrackingModeUntracked;
  id<MTLBuffer> x = [MetalDevice() newBufferWithLength:256 options:untracked];
  id<MTLBuffer> y = [MetalDevice() newBufferWithLength:256 options:untracked];
  id<MTLFence> fence = [MetalDevice() newFence];
  id<MTLCommandBuffer> commands = [MetalQueue() commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  Encode(encoder, @"increment", {x});
  [encoder updateFence:fence];
  [encoder endEncoding];
  id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
  if (right) [blit waitForFence:fence];
  [blit copyFromBuffer:x
           sourceOffset:0
               toBuffer:y
      destinationOffset:0
                   size:256];
  [blit endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
}

void HostWritesInFlight(bool right) {
  at::Tensor x = OnMps(), y = OnMps();
  auto *contents = static_cast<float *>([BufferOf(x) contents]);
  EncodeOn(StreamBuffer(), @"reverse", {BufferOf(x), BufferOf(y)});
  CommitStream();
  if (right) torch::mps::synchronize();
  contents[3] = 7;
  torch::mps::synchronize();
}

void ThreadgroupMemoryTooShort(bool right) {
  at::Tensor x = OnMps();
  id<MTLComputeCommandEncoder> encoder = [StreamBuffer() computeCommandEncoder];
  [encoder setThreadgroupMemoryLength:right ? 256 : 64 atIndex:0];
  Encode(encoder, @"through_threadgroup", {BufferOf(x)});
  [encoder endEncoding];
  torch::mps::synchronize();
}

void EncoderBesideTorchs(bool right) {
  at::Tensor x = OnMps();
  id<MTLCommandBuffer> buffer = StreamBuffer();
  x.add_(1);
  if (right) buffer = StreamBuffer();
  EncodeOn(buffer, @"increment", {BufferOf(x)});
  torch::mps::synchronize();
}

void UnretainedBuffer(bool right) {
  at::Tensor y = OnMps();
  id<MTLBuffer> buffer = [MetalDevice() newBufferWithLength:256 options:0];
  static_cast<float *>([buffer contents])[0] = 3;
  id<MTLCommandBuffer> commands =
      right ? [MetalQueue() commandBuffer]
            : [MetalQueue() commandBufferWithUnretainedReferences];
  EncodeOn(commands, @"reverse", {buffer, BufferOf(y)});
  [buffer release];
  [commands commit];
  [commands waitUntilCompleted];
}

// A buffer whose address is in another one, an argument buffer.
void BufferBehindAnother(bool right) {
  id<MTLBuffer> x = [MetalDevice() newBufferWithLength:256 options:0];
  auto *contents = static_cast<float *>([x contents]);
  contents[63] = 3;
  uint64_t address = [x gpuAddress];
  id<MTLBuffer> arguments = [MetalDevice() newBufferWithBytes:&address
                                                       length:sizeof(address)
                                                      options:0];
  id<MTLCommandBuffer> commands = [MetalQueue() commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  if (right)
    [encoder useResource:x usage:MTLResourceUsageRead | MTLResourceUsageWrite];
  Encode(encoder, @"increment_behind", {arguments});
  [encoder endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  TORCH_CHECK(contents[63] == 4, "the kernel wrote elsewhere");
}

void StaleContents(bool right) {
  at::Tensor x = OnMps();
  auto *contents = static_cast<float *>([BufferOf(x) contents]);
  if (!right) x = at::Tensor();
  contents[0] = 5;
}

void ContentsOverrun(bool right) {
  at::Tensor x = OnMps();
  auto *contents = static_cast<float *>([BufferOf(x) contents]);
  contents[right ? 63 : 64] = 5;
}

const std::map<std::string, void (*)(bool right)> kCases = {
    {"concurrent dispatches", ConcurrentDispatches},
    {"concurrent dispatches on other buffers", ConcurrentDispatchesOfOthers},
    {"own queue reads what torch wrote", OwnQueueReadsTorch},
    {"torch reads what an own queue writes", TorchReadsOwnQueue},
    {"two queues and an event", QueuesWithAnEvent},
    {"event waited for another value", EventOfAnotherValue},
    {"blit of a buffer that Metal does not track", BlitOfUntrackedBuffer},
    {"host writes to what is in flight", HostWritesInFlight},
    {"threadgroup memory too short", ThreadgroupMemoryTooShort},
    {"encoder beside torch's own", EncoderBesideTorchs},
    {"buffer released without retained references", UnretainedBuffer},
    {"buffer behind another, not used", BufferBehindAnother},
    {"contents of a freed buffer", StaleContents},
    {"contents beyond the end", ContentsOverrun},
};

}  // namespace

void BetweenCommands(const std::string &name, bool right) {
  @autoreleasepool {
    kCases.at(name)(right);
  }
}

void MakeCommandBuffers(int64_t count, bool in_a_pool) {
  NSAutoreleasePool *pool = in_a_pool ? [[NSAutoreleasePool alloc] init] : nil;
  for (int64_t i = 0; i < count; ++i) [MetalQueue() commandBuffer];
  [pool drain];
}
