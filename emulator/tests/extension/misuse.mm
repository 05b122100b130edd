// Each of these is a mistake on a Mac.  The emulator ends the process with one
// line that names the mistake; test_misuse.py has the lines.
#include "extension.h"

#include <ATen/ATen.h>
#include <ATen/mps/MPSStream.h>
#include <torch/mps.h>

#include <stdexcept>
#include <thread>

namespace {

at::Tensor OnMps(int64_t elements) {
  return at::zeros({elements}, at::TensorOptions().device(at::kMPS));
}

id<MTLCommandBuffer> StreamBuffer() { return torch::mps::get_command_buffer(); }

// An encoder on torch's stream with a pipeline and a buffer of 64 floats.
id<MTLComputeCommandEncoder> ReadyEncoder(const char *kernel = "axpy") {
  static at::Tensor tensor = OnMps(64);
  id<MTLComputeCommandEncoder> encoder = [StreamBuffer() computeCommandEncoder];
  [encoder setComputePipelineState:Pipeline(kernel)];
  [encoder setBuffer:BufferOf(tensor) offset:0 atIndex:0];
  return encoder;
}

id<MTLBuffer> NewBuffer(NSUInteger length) {
  return [MTLCreateSystemDefaultDevice()
      newBufferWithLength:length
                  options:MTLResourceStorageModeShared];
}

id<MTLCommandBuffer> OwnCommandBuffer() {
  return [[MTLCreateSystemDefaultDevice() newCommandQueue] commandBuffer];
}

MTLSize Threads(NSUInteger n) { return MTLSizeMake(n, 1, 1); }

const std::vector<Case> &Cases() {
  static const std::vector<Case> cases = {
      // ---- encoders
      {"missing endEncoding",
       [] {
         [StreamBuffer() computeCommandEncoder];
         torch::mps::synchronize();
       }},
      {"missing endEncoding on an own command buffer",
       [] {
         id<MTLCommandBuffer> buffer = OwnCommandBuffer();
         [buffer blitCommandEncoder];
         [buffer commit];
       }},
      {"missing endEncoding before an operator",
       [] {
         at::Tensor x = OnMps(4);
         [StreamBuffer() computeCommandEncoder];
         x.add_(1);
       }},
      {"nested encoders",
       [] {
         id<MTLCommandBuffer> buffer = StreamBuffer();
         [buffer computeCommandEncoder];
         [buffer blitCommandEncoder];
       }},
      {"encoder after commit",
       [] {
         id<MTLCommandBuffer> buffer = OwnCommandBuffer();
         [buffer commit];
         [buffer computeCommandEncoder];
       }},
      {"encoder after synchronize",
       [] {
         id<MTLCommandBuffer> buffer = [StreamBuffer() retain];
         torch::mps::synchronize();
         [buffer computeCommandEncoder];
       }},
      {"use after endEncoding",
       [] {
         id<MTLComputeCommandEncoder> encoder = ReadyEncoder();
         [encoder endEncoding];
         [encoder setBytes:"abcd" length:4 atIndex:2];
       }},
      {"endEncoding twice",
       [] {
         id<MTLComputeCommandEncoder> encoder = ReadyEncoder();
         [encoder endEncoding];
         [encoder endEncoding];
       }},
      {"encoder released unended",
       [] {
         @autoreleasepool {
           [OwnCommandBuffer() computeCommandEncoder];
         }
       }},
      {"commit twice",
       [] {
         id<MTLCommandBuffer> buffer = OwnCommandBuffer();
         [buffer commit];
         [buffer commit];
       }},
      {"wait without commit", [] { [OwnCommandBuffer() waitUntilCompleted]; }},
      {"handler after commit",
       [] {
         id<MTLCommandBuffer> buffer = OwnCommandBuffer();
         [buffer commit];
         [buffer addCompletedHandler:^(id<MTLCommandBuffer>){
         }];
       }},

      // ---- arguments
      {"buffer index 31",
       [] { [ReadyEncoder() setBuffer:NewBuffer(16) offset:0 atIndex:31]; }},
      {"bytes index 31",
       [] { [ReadyEncoder() setBytes:"abcd" length:4 atIndex:31]; }},
      {"threadgroup memory index 31",
       [] { [ReadyEncoder() setThreadgroupMemoryLength:16 atIndex:31]; }},
      {"setBytes of 4097 bytes",
       [] {
         std::string bytes(4097, 'x');
         [ReadyEncoder() setBytes:bytes.data() length:4097 atIndex:2];
       }},
      {"CPU pointer as a buffer",
       [] {
         at::Tensor cpu = at::zeros({4});
         [ReadyEncoder() setBuffer:BufferOf(cpu) offset:0 atIndex:1];
       }},
      {"view's data pointer as a buffer",
       [] {
         at::Tensor view = OnMps(8).slice(0, 2);
         id<MTLBuffer> buffer =
             __builtin_bit_cast(id<MTLBuffer>, view.data_ptr());
         [buffer contents];
       }},
      {"view's data pointer in setBuffer",
       [] {
         at::Tensor view = OnMps(8).slice(0, 2);
         [ReadyEncoder()
             setBuffer:__builtin_bit_cast(id<MTLBuffer>, view.data_ptr())
                offset:0
               atIndex:1];
       }},
      {"freed buffer",
       [] {
         id<MTLBuffer> buffer = BufferOf(OnMps(8));
         [buffer contents];
       }},
      {"released buffer",
       [] {
         id<MTLBuffer> buffer = NewBuffer(16);
         [buffer release];
         [buffer length];
       }},
      {"offset beyond the buffer",
       [] { [ReadyEncoder() setBuffer:NewBuffer(16) offset:20 atIndex:1]; }},
      {"setBufferOffset without a buffer",
       [] { [ReadyEncoder() setBufferOffset:4 atIndex:7]; }},
      {"unknown method of a buffer",
       [] { [(NSString *)NewBuffer(16) UTF8String]; }},
      {"unknown method of an object", [] { [(id) @"text" contents]; }},
      {"unknown method of a class",
       [] { [(id)[NSString class] pipelineNamed:@"axpy"]; }},
      {"nil pipeline", [] { [ReadyEncoder() setComputePipelineState:nil]; }},
      {"nil function",
       [] {
         NSError *error = nil;
         id<MTLFunction> none = nil;
         [MTLCreateSystemDefaultDevice()
             newComputePipelineStateWithFunction:none
                                           error:&error];
       }},
      {"private contents in newBufferWithBytes",
       [] {
         [MTLCreateSystemDefaultDevice()
             newBufferWithBytes:"abcd"
                         length:4
                        options:MTLResourceStorageModePrivate];
       }},
      {"buffer of no bytes", [] { NewBuffer(0); }},

      // ---- dispatches
      {"dispatch without a pipeline",
       [] {
         [[StreamBuffer() computeCommandEncoder] dispatchThreads:Threads(4)
                                           threadsPerThreadgroup:Threads(4)];
       }},
      {"1025 threads in a threadgroup",
       [] {
         [ReadyEncoder() dispatchThreads:Threads(2048)
                   threadsPerThreadgroup:Threads(1025)];
       }},
      {"no threads in a threadgroup",
       [] {
         [ReadyEncoder() dispatchThreads:Threads(4)
                   threadsPerThreadgroup:Threads(0)];
       }},
      {"more threads than the pipeline takes",
       [] {
         [ReadyEncoder("at_most_64_threads") dispatchThreads:Threads(128)
                                       threadsPerThreadgroup:Threads(128)];
       }},
      {"too much threadgroup memory",
       [] {
         id<MTLComputeCommandEncoder> encoder =
             ReadyEncoder("big_threadgroup_memory");
         [encoder setThreadgroupMemoryLength:16400 atIndex:0];
         [encoder dispatchThreads:Threads(16)
             threadsPerThreadgroup:Threads(16)];
       }},
      {"threadgroup memory not a multiple of 16",
       [] { [ReadyEncoder() setThreadgroupMemoryLength:20 atIndex:0]; }},
      {"unbound buffer",
       [] {
         id<MTLComputeCommandEncoder> encoder = ReadyEncoder("scale");
         [encoder dispatchThreads:Threads(4) threadsPerThreadgroup:Threads(4)];
         [encoder endEncoding];
         torch::mps::synchronize();
       }},

      // ---- blits
      {"blit beyond the source",
       [] {
         [[StreamBuffer() blitCommandEncoder] copyFromBuffer:NewBuffer(16)
                                                sourceOffset:8
                                                    toBuffer:NewBuffer(64)
                                           destinationOffset:0
                                                        size:16];
       }},
      {"blit beyond the destination",
       [] {
         [[StreamBuffer() blitCommandEncoder] copyFromBuffer:NewBuffer(64)
                                                sourceOffset:0
                                                    toBuffer:NewBuffer(16)
                                           destinationOffset:8
                                                        size:16];
       }},
      {"blit of 6 bytes",
       [] {
         [[StreamBuffer() blitCommandEncoder] copyFromBuffer:NewBuffer(64)
                                                sourceOffset:0
                                                    toBuffer:NewBuffer(64)
                                           destinationOffset:0
                                                        size:6];
       }},
      {"overlapping blit",
       [] {
         id<MTLBuffer> buffer = NewBuffer(64);
         [[StreamBuffer() blitCommandEncoder] copyFromBuffer:buffer
                                                sourceOffset:0
                                                    toBuffer:buffer
                                           destinationOffset:8
                                                        size:16];
       }},
      {"fill beyond the buffer",
       [] {
         [[StreamBuffer() blitCommandEncoder] fillBuffer:NewBuffer(16)
                                                   range:NSMakeRange(8, 16)
                                                   value:0];
       }},

      // ---- queues and threads
      {"dispatch_sync on its own queue",
       [] {
         dispatch_queue_t queue = torch::mps::get_dispatch_queue();
         dispatch_sync(queue, ^{
           dispatch_sync(queue, ^{
                         });
         });
       }},
      {"operator inside dispatch_sync",
       [] {
         at::Tensor x = OnMps(4);
         dispatch_sync(torch::mps::get_dispatch_queue(), ^{
           at::Tensor y = x + 1;
         });
       }},
      {"exception out of dispatch_sync",
       [] {
         dispatch_sync(torch::mps::get_dispatch_queue(), ^{
           throw std::runtime_error("the reason");
         });
       }},
      {"synchronize while another thread is in the queue",
       [] {
         std::thread other([] { HoldQueue(2000); });
         std::this_thread::sleep_for(std::chrono::milliseconds(200));
         torch::mps::synchronize();
       }},
      {"commit while another thread is in the queue",
       [] {
         std::thread other([] { HoldQueue(2000); });
         std::this_thread::sleep_for(std::chrono::milliseconds(200));
         torch::mps::commit();
       }},
      {"queue entered while another thread synchronizes",
       [] {
         // The completed handler keeps the first thread inside synchronize().
         [StreamBuffer() addCompletedHandler:^(id<MTLCommandBuffer>) {
           std::this_thread::sleep_for(std::chrono::milliseconds(2000));
         }];
         std::thread other([] { torch::mps::synchronize(); });
         std::this_thread::sleep_for(std::chrono::milliseconds(200));
         SynchronizeInQueue();
       }},
      {"synchronize on two threads",
       [] {
         [StreamBuffer() addCompletedHandler:^(id<MTLCommandBuffer>) {
           std::this_thread::sleep_for(std::chrono::milliseconds(2000));
         }];
         std::thread other([] { torch::mps::synchronize(); });
         std::this_thread::sleep_for(std::chrono::milliseconds(200));
         torch::mps::synchronize();
       }},

      // ---- memory
      {"kernel writes past the end",
       [] {
         PokeAt(OnMps(25), 25);
         torch::mps::synchronize();
       }},
      {"host write to recycled memory in flight",
       [] {
         at::Tensor x = at::ones({64}, at::TensorOptions().device(at::kMPS));
         at::Tensor y = OnMps(64);
         torch::mps::synchronize();
         Axpy(x, y, 2.0);
         x = at::Tensor();
         at::Tensor recycled = at::empty({64}, y.options());
         WriteContents(recycled, std::vector<float>(64, 5.0f));
         torch::mps::synchronize();
       }},
      {"host write to recycled memory that is freed again",
       [] {
         at::Tensor x = at::ones({64}, at::TensorOptions().device(at::kMPS));
         torch::mps::synchronize();
         at::Tensor y = x + 1;
         x = at::Tensor();
         WriteContents(at::empty({64}, y.options()),
                       std::vector<float>(64, 5.0f));
       }},
      {"host write to recycled memory, then a kernel on it",
       [] {
         at::Tensor x = at::ones({64}, at::TensorOptions().device(at::kMPS));
         at::Tensor y = OnMps(64);
         torch::mps::synchronize();
         Axpy(x, y, 2.0);
         x = at::Tensor();
         at::Tensor recycled = at::empty({64}, y.options());
         WriteContents(recycled, std::vector<float>(64, 5.0f));
         Axpy(recycled, y, 2.0);
         recycled = at::Tensor();
         torch::mps::synchronize();
       }},
      {"host write to recycled memory of an operator",
       [] {
         at::Tensor x = at::ones({64}, at::TensorOptions().device(at::kMPS));
         torch::mps::synchronize();
         at::Tensor y = x + 1;
         x = at::Tensor();
         at::Tensor recycled = at::empty({64}, y.options());
         WriteContents(recycled, std::vector<float>(64, 5.0f));
         torch::mps::synchronize();
       }},
  };
  return cases;
}

}  // namespace

std::vector<std::string> Misuses() { return NamesOf(Cases()); }

void Misuse(const std::string &name) { Run(Cases(), name); }
