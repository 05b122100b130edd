// Declares the functions that several files of the test extension use.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// From torch 2.15 on, the functions of torch/mps.h use the current stream, and
// check whether the caller is in the dispatch queue of that stream.
#include <torch/headeronly/version.h>
#define TORCH_KNOWS_QUEUES \
  (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15)

#ifdef __OBJC__
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <torch/mps.h>

// The MTLBuffer of an mps tensor, and the offset of the tensor's data in this
// buffer.
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

// Returns the command buffer into which torch encodes.  From torch 2.15 on,
// only code inside of the dispatch queue can get this command buffer.
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

// Returns a float32 tensor of zeros on mps.
at::Tensor OnMps(int64_t elements);

// Returns the pipeline of a kernel in kernels.mm, and makes it at the first
// call.
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

// ---- memory.mm: the host's accesses to an mps tensor
// HostAddressByTorch() and HostAddress() return the host address of the
// tensor's first element, as an integer.  HostAddressByTorch() gets the
// MTLBuffer from a function of torch's headers.
uintptr_t HostAddressByTorch(const at::Tensor &tensor);
uintptr_t HostAddress(const at::Tensor &tensor);
// On the host, reads or writes the elements of a float32 tensor.  Does not wait
// for the device.
std::vector<float> ReadContents(const at::Tensor &tensor);
void WriteContents(at::Tensor tensor, std::vector<float> values);
// Reads a byte through the tensor's data pointer.  The read causes a fault.
float DereferenceHandle(const at::Tensor &tensor, int64_t byte);
// Uses torch's allocator interface to return a CPU tensor that shares memory
// with the host copy of `tensor`.
at::Tensor HostAlias(const at::Tensor &tensor);

// ---- stream.mm
void SynchronizeOutsideQueue();
void SynchronizeInQueue();
// Calls the function that is safe while other threads use the stream:
// SynchronizeOutsideQueue() from torch 2.15 on, SynchronizeInQueue() in earlier
// releases.
void Synchronize();
void CommitInQueue();
void CommitOutsideQueue();
// Calls commandEncoder() of torch's stream, inside or outside of the stream's
// dispatch queue.
void TakeEncoder(bool in_queue);
// Returns the mean time of a call of Synchronize() on an idle device.
double NanosecondsOfIdleWait(int64_t repetitions);
// Encodes a dispatch on `x`.  Returns the status and the error text that the
// completed handler of torch's command buffer reads.
std::pair<int, std::string> StatusAfterDispatch(at::Tensor x);
// Occupies torch's dispatch queue for some milliseconds, without the GIL.
void HoldQueue(int64_t milliseconds);
// Throws an exception inside of dispatch_sync_with_rethrow().  This use is
// correct.
void ThrowThroughRethrow();

// ---- signposts.mm
bool SignpostsEnabled(const std::string &category);
// Begins an interval with the name "interval" and a public message.  Returns
// the signpost's id, the argument of EndInterval().
uint64_t BeginInterval(const std::string &category, const std::string &message);
void EndInterval(const std::string &category, uint64_t id);
// Begins intervals with and without messages, and two intervals with the ids
// OS_SIGNPOST_ID_NULL and OS_SIGNPOST_ID_INVALID.
void PostMessages(const std::string &text);

// ---- metal.mm: checks that raise if the emulator does not behave like a Mac
std::vector<std::string> MetalChecks();
void RunMetalCheck(const std::string &name);

// ---- commands.mm
// Runs the correct or the wrong form of a case.
void BetweenCommands(const std::string &name, bool right);
// Makes `count` command buffers, in an autorelease pool or without one.
void MakeCommandBuffers(int64_t count, bool in_a_pool);

// ---- misuse.mm: cases that end the process
std::vector<std::string> Misuses();
void Misuse(const std::string &name);
