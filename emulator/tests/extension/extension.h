// The declarations that the files of the test extension share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// From torch 2.15 on, the functions of torch/mps.h follow the current stream,
// and know whether they run in its queue.
#include <torch/headeronly/version.h>
#define TORCH_KNOWS_QUEUES \
  (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15)

#ifdef __OBJC__
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <torch/mps.h>

// The MTLBuffer of an mps tensor, and the offset of the tensor's data in it.
inline id<MTLBuffer> BufferOf(const at::Tensor &tensor) {
  return __builtin_bit_cast(id<MTLBuffer>, tensor.storage().data());
}
inline NSUInteger OffsetOf(const at::Tensor &tensor) {
  return tensor.storage_offset() * tensor.element_size();
}

inline id<MTLDevice> MetalDevice() {
  static id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  return device;
}
inline id<MTLCommandQueue> MetalQueue() {
  static id<MTLCommandQueue> queue = [MetalDevice() newCommandQueue];
  [queue setLabel:@"own"];
  return queue;
}

// torch's open command buffer.  From 2.15 on, torch gives it only to code
// inside of the queue.
inline id<MTLCommandBuffer> StreamBuffer() {
  __block id<MTLCommandBuffer> buffer;
  dispatch_sync(torch::mps::get_dispatch_queue(), ^{
    buffer = torch::mps::get_command_buffer();
  });
  return buffer;
}

inline void Finish(id<MTLCommandBuffer> commands) {
  [commands commit];
  [commands waitUntilCompleted];
}

inline void Dispatch(id<MTLComputeCommandEncoder> encoder, NSUInteger threads,
                     NSUInteger group) {
  [encoder dispatchThreads:MTLSizeMake(threads, 1, 1)
      threadsPerThreadgroup:MTLSizeMake(group, 1, 1)];
}

inline void Copy(id<MTLBlitCommandEncoder> blit, id<MTLBuffer> from,
                 NSUInteger begin, id<MTLBuffer> to, NSUInteger place,
                 NSUInteger size) {
  [blit copyFromBuffer:from
           sourceOffset:begin
               toBuffer:to
      destinationOffset:place
                   size:size];
}

// A tensor of zeros.
at::Tensor OnMps(int64_t elements);

// The pipeline of a kernel in kernels.mm, made at its first use.
id<MTLComputePipelineState> Pipeline(const char *kernel);

struct Case {
  const char *name;
  std::function<void()> run;
};
inline std::vector<std::string> NamesOf(const std::vector<Case> &cases) {
  std::vector<std::string> names;
  for (const Case &c : cases) names.push_back(c.name);
  return names;
}
inline void Run(const std::vector<Case> &cases, const std::string &name) {
  @autoreleasepool {
    for (const Case &c : cases)
      if (c.name == name) return c.run();
  }
  TORCH_CHECK(false, "no case ", name);
}

#endif

// ---- memory.mm: the host's view of an mps tensor
// [buffer contents] plus the tensor's offset, as an integer
uintptr_t HostAddressByTorch(const at::Tensor &tensor);
uintptr_t HostAddress(const at::Tensor &tensor);
std::vector<float> ReadContents(const at::Tensor &tensor);
void WriteContents(at::Tensor tensor, std::vector<float> values);
// through the data pointer: a fault
float DereferenceHandle(const at::Tensor &tensor, int64_t byte);
// A CPU tensor over the host copy, through torch's allocator interface
at::Tensor HostAlias(const at::Tensor &tensor);

// ---- stream.mm
void SynchronizeOutsideQueue();
void SynchronizeInQueue();
// The one of these two that other threads do not disturb.
void Synchronize();
void CommitInQueue();
void CommitOutsideQueue();
// Takes the encoder of torch's own stream.
void TakeEncoder(bool in_queue);
// Of Synchronize().
double NanosecondsOfIdleWait(int64_t repetitions);
// The status of torch's command buffer after a dispatch on `x`, and the text of
// its error; as its completed handler sees them.
std::pair<int, std::string> StatusAfterDispatch(at::Tensor x);
// Holds torch's dispatch queue for some milliseconds, without the GIL.
void HoldQueue(int64_t milliseconds);
// Passes an exception out of dispatch_sync in the right way.
void ThrowThroughRethrow();

// ---- signposts.mm
bool SignpostsEnabled(const std::string &category);
// An interval "interval" with a public message; returns its id.
uint64_t BeginInterval(const std::string &category, const std::string &message);
void EndInterval(const std::string &category, uint64_t id);
// Begins with all kinds of messages, and two whose ids identify no interval.
void PostMessages(const std::string &text);

// ---- metal.mm: checks by name; they raise where the behaviour is not a Mac's
std::vector<std::string> MetalChecks();
void RunMetalCheck(const std::string &name);

// ---- commands.mm: a case by its name, in its right or its wrong form
void BetweenCommands(const std::string &name, bool right);
void MakeCommandBuffers(int64_t count, bool in_a_pool);

// ---- misuse.mm: each ends the process
std::vector<std::string> Misuses();
void Misuse(const std::string &name);
