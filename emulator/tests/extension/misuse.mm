// Each case is a mistake on a Mac.  The emulator ends the process and prints
// one line that names the mistake.  The text of the case is a part of that
// line.
#include "extension.h"

#include <ATen/ATen.h>
#include <ATen/mps/MPSStream.h>
#include <torch/mps.h>

#include <stdexcept>
#include <thread>

namespace {

id<MTLCommandBuffer> OwnCommandBuffer() {
  return [[MetalDevice() newCommandQueue] commandBuffer];
}

// Returns an encoder of torch's command buffer.  The encoder has a pipeline,
// and a buffer of 64 floats.
id<MTLComputeCommandEncoder> ReadyEncoder(const char *kernel = "scale") {
  static at::Tensor tensor = OnMps(64);
  id<MTLComputeCommandEncoder> encoder = [StreamBuffer() computeCommandEncoder];
  [encoder setComputePipelineState:Pipeline(kernel)];
  [encoder setBuffer:BufferOf(tensor) offset:0 atIndex:0];
  return encoder;
}

id<MTLBuffer> NewBuffer(NSUInteger length) {
  return [MetalDevice() newBufferWithLength:length
                                    options:MTLResourceStorageModeShared];
}

// Returns the data pointer of a view.  The data pointer of the storage is an
// MTLBuffer.  The data pointer of the view is 8 bytes later, and is not an
// MTLBuffer.
id<MTLBuffer> InteriorPointer() {
  static at::Tensor view = OnMps(8).slice(0, 2);
  return __builtin_bit_cast(id<MTLBuffer>, view.data_ptr());
}

id<MTLBlitCommandEncoder> Blit() { return [StreamBuffer() blitCommandEncoder]; }

#if !TORCH_KNOWS_QUEUES
// Calls `work` while another thread waits inside torch::mps::synchronize().  A
// completed handler that sleeps keeps the other thread waiting.
void WhileAnotherThreadSynchronizes(void (*work)()) {
  [StreamBuffer() addCompletedHandler:^(id<MTLCommandBuffer>) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));
  }];
  std::thread other([] { torch::mps::synchronize(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  work();
}
#endif

const std::vector<Case> &Cases() {
  static const std::vector<Case> cases = {
      // ---- encoders
      {"commit: the compute command encoder of this command buffer lacks "
       "endEncoding",
       [] {
         [StreamBuffer() computeCommandEncoder];
         torch::mps::synchronize();
       }},
      {"aten::add_: a compute command encoder is already encoding to this "
       "command buffer",
       [] {
         at::Tensor x = OnMps(4);
         [StreamBuffer() computeCommandEncoder];
         x.add_(1);
       }},
      {"blit command encoder: a compute command encoder is already encoding to "
       "this command buffer",
       [] {
         id<MTLCommandBuffer> buffer = StreamBuffer();
         [buffer computeCommandEncoder];
         [buffer blitCommandEncoder];
       }},
      {"compute command encoder: the command buffer was committed before",
       [] {
         id<MTLCommandBuffer> buffer = [StreamBuffer() retain];
         torch::mps::synchronize();
         [buffer computeCommandEncoder];
       }},
      {"setBytes:length:atIndex:: this compute command encoder was ended by "
       "endEncoding before",
       [] {
         id<MTLComputeCommandEncoder> encoder = ReadyEncoder();
         [encoder endEncoding];
         [encoder setBytes:"abcd" length:4 atIndex:2];
       }},
      {"a compute command encoder was released without endEncoding",
       [] {
         @autoreleasepool {
           [OwnCommandBuffer() computeCommandEncoder];
         }
       }},
      {"commit: the command buffer was committed before",
       [] {
         id<MTLCommandBuffer> buffer = OwnCommandBuffer();
         [buffer commit];
         [buffer commit];
       }},
      {"waitUntilCompleted: the command buffer was not committed",
       [] { [OwnCommandBuffer() waitUntilCompleted]; }},

      // ---- arguments
      {"setBuffer:offset:atIndex:: index 31 is not below 31",
       [] { [ReadyEncoder() setBuffer:NewBuffer(16) offset:0 atIndex:31]; }},
      {"a length of 4097 bytes is over the limit of 4096",
       [] {
         std::string bytes(4097, 'x');
         [ReadyEncoder() setBytes:bytes.data() length:4097 atIndex:2];
       }},
      {"is not an MTLBuffer of the emulated device; is it the data pointer of "
       "a CPU tensor?",
       [] {
         at::Tensor cpu = at::zeros({4});
         [ReadyEncoder() setBuffer:BufferOf(cpu) offset:0 atIndex:1];
       }},
      {"message -contents: ", [] { [InteriorPointer() contents]; }},
      {"is byte 8 of MTLBuffer #",
       [] {
         id<MTLBuffer> interior = InteriorPointer();
         [ReadyEncoder() setBuffer:interior offset:0 atIndex:1];
       }},
      {"(32 bytes) has been freed",
       [] {
         id<MTLBuffer> buffer = BufferOf(OnMps(8));
         [buffer contents];
       }},
      {"offset 20 is beyond the 16 bytes of MTLBuffer",
       [] { [ReadyEncoder() setBuffer:NewBuffer(16) offset:20 atIndex:1]; }},
      {"-[MTLBuffer UTF8String]: the emulator's MTLBuffer has no such method",
       [] { [(NSString *)NewBuffer(16) UTF8String]; }},
      {"-[NSConstantString contents]: the object has no such method",
       [] { [(id) @"text" contents]; }},
      {"+[NSString pipelineNamed:]: the object has no such method",
       [] { [(id)[NSString class] pipelineNamed:@"axpy"]; }},
      {"setComputePipelineState: the pipeline is nil",
       [] { [ReadyEncoder() setComputePipelineState:nil]; }},
      {"newComputePipelineStateWithFunction:error: the function is nil",
       [] {
         id<MTLFunction> none = nil;
         [MetalDevice() newComputePipelineStateWithFunction:none error:nil];
       }},
      {"private storage cannot be filled by the CPU",
       [] {
         [MetalDevice() newBufferWithBytes:"abcd"
                                    length:4
                                   options:MTLResourceStorageModePrivate];
       }},
      {"a length of 0 bytes is outside 1 .. ", [] { NewBuffer(0); }},

      // ---- dispatches
      {"no pipeline is set; call setComputePipelineState: first",
       [] { Dispatch([StreamBuffer() computeCommandEncoder], 4, 4); }},
      {"a threadgroup of 0 x 1 x 1 threads is outside 1 .. 1024",
       [] { Dispatch(ReadyEncoder(), 4, 0); }},
      {"a threadgroup of 128 x 1 x 1 threads is outside 1 .. 64, the limit of "
       "kernel at_most_64_threads's pipeline",
       [] { Dispatch(ReadyEncoder("at_most_64_threads"), 128, 128); }},
      {"gets 32784 bytes of threadgroup memory (16384 of them for its own "
       "variables), over the limit of 32768",
       [] {
         id<MTLComputeCommandEncoder> encoder =
             ReadyEncoder("big_threadgroup_memory");
         [encoder setThreadgroupMemoryLength:16400 atIndex:0];
         Dispatch(encoder, 16, 16);
       }},
      {"the length, 20 bytes, must be a multiple of 16",
       [] { [ReadyEncoder() setThreadgroupMemoryLength:20 atIndex:0]; }},
      {"kernel 'scale': no buffer is bound at index 5 (parameter 'factor')",
       [] {
         id<MTLComputeCommandEncoder> encoder = ReadyEncoder();
         Dispatch(encoder, 4, 4);
         [encoder endEncoding];
         torch::mps::synchronize();
       }},

      // ---- blits
      {"16 bytes from byte 8 on are beyond the end of the source",
       [] { Copy(Blit(), NewBuffer(16), 8, NewBuffer(64), 0, 16); }},
      {"size 6 must be multiples of 4",
       [] { Copy(Blit(), NewBuffer(64), 0, NewBuffer(64), 0, 6); }},
      {"source and destination overlap",
       [] {
         id<MTLBuffer> buffer = NewBuffer(64);
         Copy(Blit(), buffer, 0, buffer, 8, 16);
       }},

      // ---- queues and threads
      {"dispatch_sync on queue \"metal gpu stream\" from work that runs on "
       "that queue",
       [] {
         dispatch_queue_t queue = torch::mps::get_dispatch_queue();
         dispatch_sync(queue, ^{
           dispatch_sync(queue, ^{
                         });
         });
       }},
      {"aten::add on an mps tensor inside dispatch_sync on torch's dispatch "
       "queue",
       [] {
         at::Tensor x = OnMps(4);
         dispatch_sync(torch::mps::get_dispatch_queue(), ^{
           at::Tensor y = x + 1;
         });
       }},
      {"a C++ exception left a block given to queue \"metal gpu stream\" (the "
       "reason)",
       [] {
         dispatch_sync(torch::mps::get_dispatch_queue(), ^{
           throw std::runtime_error("the reason");
         });
       }},
#if !TORCH_KNOWS_QUEUES
      {"synchronizing torch's stream ran outside the dispatch queue \"metal "
       "gpu stream\" on one thread while this thread started work in that "
       "queue",
       [] { WhileAnotherThreadSynchronizes(&SynchronizeInQueue); }},
      {"synchronizing torch's stream ran outside the dispatch queue \"metal "
       "gpu stream\" on one thread while another thread did the same",
       [] { WhileAnotherThreadSynchronizes(&SynchronizeOutsideQueue); }},
#endif
  };
  return cases;
}

}  // namespace

std::vector<std::string> Misuses() { return NamesOf(Cases()); }

void Misuse(const std::string &message) { Run(Cases(), message); }
