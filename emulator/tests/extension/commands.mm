// Mistakes in the use of commands: races between two dispatches, races between
// two queues, races between a queue and the host, and uses of freed objects.
// Each case is a function that makes the mistake if `right` is false, and does
// the same work correctly if `right` is true.  test_commands.py has the
// emulator's messages.
#include "extension.h"

#include <torch/mps.h>

#include <map>
#include <string>
#include <vector>

namespace {

// Returns a tensor of 64 zeros, after the device has written it.
at::Tensor Ready() {
  at::Tensor tensor = OnMps(64);
  torch::mps::synchronize();
  return tensor;
}

// The number of floats in half of a tensor from Ready().
constexpr NSUInteger kHalf = 32;
constexpr NSUInteger kHalfBytes = kHalf * sizeof(float);

void Encode(id<MTLComputeCommandEncoder> encoder, const char *kernel,
            const std::vector<id<MTLBuffer>> &buffers) {
  [encoder setComputePipelineState:Pipeline(kernel)];
  for (size_t i = 0; i < buffers.size(); ++i)
    [encoder setBuffer:buffers[i] offset:0 atIndex:i];
  Dispatch(encoder, 64, 64);
}

void EncodeOn(id<MTLCommandBuffer> command_buffer, const char *kernel,
              const std::vector<id<MTLBuffer>> &buffers) {
  id<MTLComputeCommandEncoder> encoder = [command_buffer computeCommandEncoder];
  Encode(encoder, kernel, buffers);
  [encoder endEncoding];
}

// Encodes a dispatch that increments `count` floats, from byte `begin` on.
void EncodePart(id<MTLComputeCommandEncoder> encoder, id<MTLBuffer> buffer,
                NSUInteger begin, NSUInteger count) {
  [encoder setComputePipelineState:Pipeline("increment")];
  [encoder setBuffer:buffer offset:begin atIndex:0];
  Dispatch(encoder, count, count);
}

void ConcurrentDispatches(bool right) {
  at::Tensor x = Ready(), y = Ready();
  id<MTLCommandBuffer> buffer = StreamBuffer();
  id<MTLComputeCommandEncoder> encoder =
      [buffer computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
  Encode(encoder, "increment", {BufferOf(x)});
  if (right) [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
  Encode(encoder, "reverse", {BufferOf(x), BufferOf(y)});
  [encoder endEncoding];
  torch::mps::synchronize();
}

void ConcurrentDispatchesOfOthers(bool) {
  at::Tensor x = Ready(), y = Ready();
  id<MTLComputeCommandEncoder> encoder = [StreamBuffer()
      computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
  Encode(encoder, "increment", {BufferOf(x)});
  Encode(encoder, "increment", {BufferOf(y)});
  [encoder endEncoding];
  torch::mps::synchronize();
}

void OwnQueueReadsTorch(bool right) {
  at::Tensor x = Ready(), y = Ready();
  x.add_(41);
  if (right) torch::mps::synchronize();
  id<MTLCommandBuffer> buffer = [MetalQueue() commandBuffer];
  EncodeOn(buffer, "reverse", {BufferOf(x), BufferOf(y)});
  Finish(buffer);
}

void TorchReadsOwnQueue(bool right) {
  at::Tensor x = Ready();
  id<MTLCommandBuffer> buffer = [MetalQueue() commandBuffer];
  EncodeOn(buffer, "increment", {BufferOf(x)});
  [buffer commit];
  if (right) [buffer waitUntilCompleted];
  x.add(1);
  [buffer waitUntilCompleted];
}

void TorchReusesWhatOwnQueueReads(bool right) {
  at::Tensor y = Ready();
  id<MTLCommandBuffer> buffer = [MetalQueue() commandBuffer];
  {
    at::Tensor x = Ready();
    EncodeOn(buffer, "reverse", {BufferOf(x), BufferOf(y)});
    [buffer commit];
    if (right) [buffer waitUntilCompleted];
  }
  Ready();  // makes a tensor in the memory of x
  [buffer waitUntilCompleted];
}

// Two queues increment the two halves of a buffer.  In the wrong form, both
// queues increment the first element of the second half.
void QueuesOnTwoHalves(bool right) {
  at::Tensor x = Ready();
  id<MTLCommandQueue> other = [MetalDevice() newCommandQueue];
  [other setLabel:@"other"];
  std::vector<id<MTLCommandBuffer>> commands;
  for (id<MTLCommandQueue> queue : {MetalQueue(), other}) {
    commands.push_back([queue commandBuffer]);
    id<MTLComputeCommandEncoder> encoder =
        [commands.back() computeCommandEncoder];
    if (queue == other)
      EncodePart(encoder, BufferOf(x), kHalfBytes, kHalf);
    else
      EncodePart(encoder, BufferOf(x), 0, right ? kHalf : kHalf + 1);
    [encoder endEncoding];
    [commands.back() commit];
  }
  for (id<MTLCommandBuffer> buffer : commands) [buffer waitUntilCompleted];
  TORCH_CHECK(x.sum().item<float>() == 64, "an element was not incremented");
}

// torch's stream increments the first half of a buffer, and another queue
// increments the second half.  In the wrong form, both queues increment the
// first element of the second half.
void TorchOnTheOtherHalf(bool right) {
  at::Tensor x = Ready();
  id<MTLCommandBuffer> buffer = [MetalQueue() commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
  EncodePart(encoder, BufferOf(x), kHalfBytes, kHalf);
  [encoder endEncoding];
  [buffer commit];
  x.narrow(0, 0, right ? kHalf : kHalf + 1).add_(1);
  [buffer waitUntilCompleted];
  TORCH_CHECK(x.sum().item<float>() == 64, "an element was not incremented");
}

// One queue blits into the second half of a buffer while another queue reads
// the first half.  In the wrong form, the other queue also reads 4 bytes of the
// second half.
void BlitBesideAReader(bool right) {
  at::Tensor x = Ready(), y = Ready();
  id<MTLCommandQueue> other = [MetalDevice() newCommandQueue];
  id<MTLCommandBuffer> first = [MetalQueue() commandBuffer];
  id<MTLBlitCommandEncoder> blit = [first blitCommandEncoder];
  Copy(blit, BufferOf(y), 0, BufferOf(x), kHalfBytes, kHalfBytes);
  [blit endEncoding];
  [first commit];
  id<MTLCommandBuffer> second = [other commandBuffer];
  blit = [second blitCommandEncoder];
  Copy(blit, BufferOf(x), right ? 0 : 4, BufferOf(y), kHalfBytes, kHalfBytes);
  [blit endEncoding];
  Finish(second);
  [first waitUntilCompleted];
}

// Encodes and commits an increment of a tensor on torch's stream.  Returns a
// new command buffer of another queue.  If `waits` is true, the new command
// buffer uses an event to wait for the increment.
id<MTLCommandBuffer> AfterAnIncrement(const at::Tensor &x, bool waits) {
  id<MTLEvent> event = [MetalDevice() newEvent];
  id<MTLCommandBuffer> first = StreamBuffer();
  EncodeOn(first, "increment", {BufferOf(x)});
  [first encodeSignalEvent:event value:1];
  CommitInQueue();
  id<MTLCommandBuffer> buffer = [MetalQueue() commandBuffer];
  if (waits) [buffer encodeWaitForEvent:event value:1];
  return buffer;
}

// The program waits for a command buffer of the second queue.  In the correct
// form, that command buffer waits for the stream's increment of x.  So the
// stream's increment is done before a third queue increments x.
void WaitForTheLastOfAChain(bool right) {
  at::Tensor x = Ready(), y = Ready();
  id<MTLCommandBuffer> second = AfterAnIncrement(x, right);
  EncodeOn(second, "increment", {BufferOf(y)});
  Finish(second);
  id<MTLCommandBuffer> third = [[MetalDevice() newCommandQueue] commandBuffer];
  EncodeOn(third, "increment", {BufferOf(x)});
  Finish(third);
  torch::mps::synchronize();
}

// Two encoders increment the two halves of a buffer without a fence.  In the
// wrong form, both encoders increment the first element of the second half.
void HalvesOfUntrackedBuffer(bool right) {
  id<MTLBuffer> x = [MetalDevice()
      newBufferWithLength:2 * kHalfBytes
                  options:MTLResourceHazardTrackingModeUntracked];
  id<MTLCommandBuffer> commands = [MetalQueue() commandBuffer];
  for (NSUInteger begin : {NSUInteger{0}, kHalfBytes}) {
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    EncodePart(encoder, x, begin, begin || right ? kHalf : kHalf + 1);
    [encoder endEncoding];
  }
  Finish(commands);
}

void QueuesWithAnEvent(bool right) {
  at::Tensor x = Ready(), y = Ready();
  id<MTLCommandBuffer> second = AfterAnIncrement(x, right);
  EncodeOn(second, "reverse", {BufferOf(x), BufferOf(y)});
  [second commit];
  CommitInQueue();
  [second waitUntilCompleted];
  torch::mps::synchronize();
}

// The stream runs two kernels, and signals the event after each kernel.  In the
// wrong form, the other queue waits only for the first signal, but reads the
// result of the second kernel.
void EventOfAnotherValue(bool right) {
  at::Tensor x = Ready(), y = Ready();
  id<MTLEvent> event = [MetalDevice() newEvent];
  for (uint64_t value : {1, 2}) {
    id<MTLCommandBuffer> first = StreamBuffer();
    EncodeOn(first, "increment", {BufferOf(x)});
    [first encodeSignalEvent:event value:value];
    CommitInQueue();
  }
  id<MTLCommandBuffer> second = [MetalQueue() commandBuffer];
  [second encodeWaitForEvent:event value:right ? 2 : 1];
  EncodeOn(second, "reverse", {BufferOf(x), BufferOf(y)});
  [second commit];
  [second waitUntilCompleted];
}

// If two encoders use the same buffer, Metal runs the encoders in order only if
// Metal tracks the buffer.  For an untracked buffer, a program needs a fence.
void BlitOfUntrackedBuffer(bool right) {
  NSUInteger untracked = MTLResourceHazardTrackingModeUntracked;
  id<MTLBuffer> x = [MetalDevice() newBufferWithLength:256 options:untracked];
  id<MTLBuffer> y = [MetalDevice() newBufferWithLength:256 options:untracked];
  id<MTLFence> fence = [MetalDevice() newFence];
  id<MTLCommandBuffer> commands = [MetalQueue() commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  Encode(encoder, "increment", {x});
  [encoder updateFence:fence];
  [encoder endEncoding];
  id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
  if (right) [blit waitForFence:fence];
  Copy(blit, x, 0, y, 0, 256);
  [blit endEncoding];
  Finish(commands);
}

// In each turn of a loop, an encoder waits for the fence that the encoder of
// the previous turn has updated.  In the wrong form, no encoder updates the
// fence.
void FenceOfALoop(bool right) {
  NSUInteger untracked = MTLResourceHazardTrackingModeUntracked;
  id<MTLBuffer> x = [MetalDevice() newBufferWithLength:256 options:untracked];
  id<MTLFence> fence = [MetalDevice() newFence];
  id<MTLCommandBuffer> commands = [MetalQueue() commandBuffer];
  for (int turn = 0; turn < 2; ++turn) {
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder waitForFence:fence];
    Encode(encoder, "increment", {x});
    if (right) [encoder updateFence:fence];
    [encoder endEncoding];
  }
  Finish(commands);
}

void HostWritesInFlight(bool right) {
  at::Tensor x = Ready(), y = Ready();
  auto *contents = static_cast<float *>([BufferOf(x) contents]);
  EncodeOn(StreamBuffer(), "reverse", {BufferOf(x), BufferOf(y)});
  CommitInQueue();
  if (right) torch::mps::synchronize();
  contents[3] = 7;
  torch::mps::synchronize();
}

void HostWritesBetweenBytesInFlight(bool right) {
  at::Tensor x = Ready(), y = Ready();
  auto *contents = static_cast<uint8_t *>([BufferOf(x) contents]);
  EncodeOn(StreamBuffer(), "copy_even_bytes", {BufferOf(x), BufferOf(y)});
  CommitInQueue();
  contents[right ? 13 : 12] ^= 1;
  torch::mps::synchronize();
}

void ThreadgroupMemoryTooShort(bool right) {
  at::Tensor x = Ready();
  id<MTLComputeCommandEncoder> encoder = [StreamBuffer() computeCommandEncoder];
  [encoder setThreadgroupMemoryLength:right ? 256 : 64 atIndex:0];
  Encode(encoder, "through_threadgroup", {BufferOf(x)});
  [encoder endEncoding];
  torch::mps::synchronize();
}

void EncoderBesideTorchs(bool right) {
  at::Tensor x = Ready();
  id<MTLCommandBuffer> buffer = StreamBuffer();
  x.add_(1);
  if (right) buffer = StreamBuffer();
  EncodeOn(buffer, "increment", {BufferOf(x)});
  torch::mps::synchronize();
}

void UnretainedBuffer(bool right) {
  at::Tensor y = Ready();
  id<MTLBuffer> buffer = [MetalDevice() newBufferWithLength:256 options:0];
  static_cast<float *>([buffer contents])[0] = 3;
  id<MTLCommandBuffer> commands =
      right ? [MetalQueue() commandBuffer]
            : [MetalQueue() commandBufferWithUnretainedReferences];
  EncodeOn(commands, "reverse", {buffer, BufferOf(y)});
  [buffer release];
  Finish(commands);
}

// The kernel reads the address of its buffer from another buffer.  Metal does
// not see this use, so the encoder must call useResource:usage:.
void BufferOfAnArgumentBuffer(bool right) {
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
  Encode(encoder, "increment_by_address", {arguments});
  [encoder endEncoding];
  Finish(commands);
  TORCH_CHECK(contents[63] == 4, "the kernel did not increment the buffer");
}

void StaleContents(bool right) {
  at::Tensor x = Ready();
  auto *contents = static_cast<float *>([BufferOf(x) contents]);
  if (!right) x = at::Tensor();
  contents[0] = 5;
}

void ContentsOverrun(bool right) {
  at::Tensor x = Ready();
  auto *contents = static_cast<float *>([BufferOf(x) contents]);
  contents[right ? 63 : 64] = 5;
}

const std::map<std::string, void (*)(bool right)> kCases = {
    {"concurrent dispatches", ConcurrentDispatches},
    {"concurrent dispatches on two buffers", ConcurrentDispatchesOfOthers},
    {"another queue reads what torch wrote", OwnQueueReadsTorch},
    {"torch reads what another queue writes", TorchReadsOwnQueue},
    {"torch reuses memory another queue reads", TorchReusesWhatOwnQueueReads},
    {"two queues on halves of a buffer", QueuesOnTwoHalves},
    {"torch and a queue on halves of a buffer", TorchOnTheOtherHalf},
    {"blits into one half and from the other half", BlitBesideAReader},
    {"wait for the last queue of a chain", WaitForTheLastOfAChain},
    {"two encoders on halves without a fence", HalvesOfUntrackedBuffer},
    {"two queues and an event", QueuesWithAnEvent},
    {"wait for another value of an event", EventOfAnotherValue},
    {"blit of a buffer that Metal does not track", BlitOfUntrackedBuffer},
    {"fence that no encoder has updated", FenceOfALoop},
    {"host writes to a buffer in flight", HostWritesInFlight},
    {"host writes to a byte in flight", HostWritesBetweenBytesInFlight},
    {"threadgroup memory too short", ThreadgroupMemoryTooShort},
    {"encoder beside torch's own", EncoderBesideTorchs},
    {"buffer released without retained references", UnretainedBuffer},
    {"buffer of an argument buffer without useResource",
     BufferOfAnArgumentBuffer},
    {"write to contents of a freed buffer", StaleContents},
    {"write beyond the end of contents", ContentsOverrun},
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
