// Correct uses of Foundation, libdispatch and Metal.  Each check expects the
// results that a Mac gives.
#include "extension.h"

#include <ATen/mps/MPSDevice.h>
#include <ATen/mps/MPSStream.h>
#include <c10/util/Exception.h>
#include <torch/mps.h>

namespace {

id<MTLBuffer> BufferWith(const std::vector<float> &values) {
  return [MetalDevice() newBufferWithBytes:values.data()
                                    length:values.size() * sizeof(float)
                                   options:MTLResourceStorageModeShared];
}

float *Floats(id<MTLBuffer> buffer) {
  return static_cast<float *>([buffer contents]);
}

// Encodes kernel `scale` of kernels.mm, which multiplies 4 elements of x by
// factor[0].
void EncodeScale(id<MTLComputeCommandEncoder> encoder, id<MTLBuffer> x,
                 id<MTLBuffer> factor) {
  [encoder setComputePipelineState:Pipeline("scale")];
  [encoder setBuffer:x offset:0 atIndex:0];
  [encoder setBuffer:factor offset:0 atIndex:5];
  Dispatch(encoder, 4, 4);
}

// Returns a command buffer that has one encoder for each factor.  Each encoder
// multiplies x by its factor.
id<MTLCommandBuffer> Scaling(id<MTLBuffer> x,
                             const std::vector<id<MTLBuffer>> &factors) {
  id<MTLCommandBuffer> commands = [MetalQueue() commandBuffer];
  for (id<MTLBuffer> factor : factors) {
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setLabel:@"scale four"];
    EncodeScale(encoder, x, factor);
    [encoder endEncoding];
  }
  return commands;
}

id<MTLLibrary> Compile(NSString *source, MTLCompileOptions *options = nil) {
  NSError *error = nil;
  id<MTLLibrary> library = [MetalDevice() newLibraryWithSource:source
                                                       options:options
                                                         error:&error];
  TORCH_CHECK(library, [[error localizedDescription] UTF8String]);
  TORCH_CHECK(error == nil);
  return library;
}

const std::vector<Case> &Checks() {
  static const std::vector<Case> checks = {
      // ---- Foundation
      {"strings",
       [] {
         NSString *text = [NSString stringWithUTF8String:"a"];
         TORCH_CHECK([text isEqualToString:@"a"], [text UTF8String]);
       }},
      {"reference counts",
       [] {
         NSString *text = [[NSString stringWithUTF8String:"x"] retain];
         NSUInteger before = [text retainCount];
         @autoreleasepool {
           [[text retain] autorelease];
           TORCH_CHECK([text retainCount] == before + 1);
         }
         TORCH_CHECK([text retainCount] == before);
         [text release];
       }},
      {"C++ exceptions in Objective-C++",
       [] {
         bool caught = false;
         @autoreleasepool {
           try {
             TORCH_CHECK(false, "typed");
           } catch (const c10::Error &error) {
             caught = true;
           }
         }
         TORCH_CHECK(caught);
       }},

      // ---- buffers
      {"buffers",
       [] {
         id<MTLBuffer> buffer = BufferWith({1, 2, 3, 4});
         TORCH_CHECK([buffer length] == 16 && Floats(buffer)[2] == 3);
         TORCH_CHECK([buffer storageMode] == MTLStorageModeShared);
         TORCH_CHECK([buffer hazardTrackingMode] ==
                     MTLHazardTrackingModeTracked);
         id<MTLBuffer> untracked = [MetalDevice()
             newBufferWithLength:16
                         options:MTLResourceHazardTrackingModeUntracked];
         TORCH_CHECK([untracked hazardTrackingMode] ==
                     MTLHazardTrackingModeUntracked);
         [untracked release];
         [buffer setLabel:@"mine"];
         TORCH_CHECK([[buffer label] isEqualToString:@"mine"]);
         TORCH_CHECK([buffer retainCount] == 1);
         [[buffer retain] release];
         [buffer release];
       }},
      {"private buffer",
       [] {
         id<MTLBuffer> hidden =
             [MetalDevice() newBufferWithLength:16
                                        options:MTLResourceStorageModePrivate];
         TORCH_CHECK([hidden contents] == nullptr);
         id<MTLBuffer> from = BufferWith({1, 2, 3, 4});
         id<MTLBuffer> to = BufferWith({0, 0, 0, 0});
         id<MTLCommandBuffer> commands = [MetalQueue() commandBuffer];
         id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
         Copy(blit, from, 0, hidden, 0, 16);
         Copy(blit, hidden, 4, to, 0, 8);
         [blit endEncoding];
         Finish(commands);
         TORCH_CHECK(Floats(to)[0] == 2 && Floats(to)[1] == 3);
       }},

      // ---- command buffers
      {"results appear with the wait, not with the commit",
       [] {
         id<MTLBuffer> x = BufferWith({1, 2, 3, 4});
         id<MTLBuffer> factor = BufferWith({2});
         id<MTLCommandBuffer> commands = Scaling(x, {factor});
         TORCH_CHECK([commands status] == MTLCommandBufferStatusNotEnqueued);
         // The host writes before the commit, so the kernel must read the new
         // value.
         Floats(factor)[0] = 10;
         __block int handled = 0;
         [commands addCompletedHandler:^(id<MTLCommandBuffer> done) {
           handled += [done status] == MTLCommandBufferStatusCompleted;
         }];
         [commands commit];
         TORCH_CHECK(Floats(x)[3] == 4 && handled == 0);
         [commands waitUntilCompleted];
         TORCH_CHECK(Floats(x)[3] == 40 && handled == 1);
         TORCH_CHECK([commands status] == MTLCommandBufferStatusCompleted);
         TORCH_CHECK([commands error] == nil);
       }},
      {"a command buffer has the times of its beginning and its end",
       [] {
         id<MTLCommandBuffer> commands =
             Scaling(BufferWith({1, 2, 3, 4}), {BufferWith({2})});
         __block CFTimeInterval seconds = -1;
         [commands addCompletedHandler:^(id<MTLCommandBuffer> done) {
           seconds = [done GPUEndTime] - [done GPUStartTime];
         }];
         [commands commit];
         TORCH_CHECK([commands GPUStartTime] == 0 &&
                     [commands GPUEndTime] == 0);
         [commands waitUntilCompleted];
         // A minute would mean that the unit is not the second.
         TORCH_CHECK(seconds > 0 && seconds < 60, seconds);
         id<MTLCommandBuffer> later =
             Scaling(BufferWith({1, 2, 3, 4}), {BufferWith({2})});
         Finish(later);
         TORCH_CHECK([later GPUStartTime] >= [commands GPUEndTime]);
       }},
      {"waiting for one queue does not publish another",
       [] {
         id<MTLBuffer> x = BufferWith({1, 1, 1, 1});
         id<MTLCommandBuffer> first = Scaling(x, {BufferWith({2})});
         id<MTLCommandBuffer> second =
             [[MetalDevice() newCommandQueue] commandBuffer];
         [first commit];
         [second commit];
         [second waitUntilCompleted];
         TORCH_CHECK(Floats(x)[0] == 1);
         [first waitUntilCompleted];
         TORCH_CHECK(Floats(x)[0] == 2);
       }},
      {"commands run in the order of commits",
       [] {
         id<MTLBuffer> x = BufferWith({1, 1, 1, 1});
         id<MTLCommandBuffer> scale = Scaling(x, {BufferWith({2})});
         id<MTLCommandBuffer> fill = [MetalQueue() commandBuffer];
         id<MTLBlitCommandEncoder> blit = [fill blitCommandEncoder];
         Copy(blit, BufferWith({0, 0, 0, 0}), 0, x, 0, 16);
         [blit endEncoding];
         [fill commit];
         Finish(scale);
         TORCH_CHECK(Floats(x)[0] == 0);
       }},
      {"polling the status makes progress",
       [] {
         id<MTLBuffer> x = BufferWith({1, 1, 1, 1});
         id<MTLCommandBuffer> commands = Scaling(x, {BufferWith({2})});
         [commands commit];
         int polls = 0;
         while ([commands status] != MTLCommandBufferStatusCompleted) ++polls;
         TORCH_CHECK(polls >= 1 && Floats(x)[0] == 2);
       }},
      {"argument table",
       [] {
         id<MTLBuffer> x = BufferWith({9, 9, 1, 2, 3, 4});
         id<MTLBuffer> factors = BufferWith({2, 3});
         id<MTLCommandBuffer> commands = [MetalQueue() commandBuffer];
         id<MTLComputeCommandEncoder> encoder =
             [commands computeCommandEncoder];
         [encoder setComputePipelineState:Pipeline("scale")];
         [encoder setBuffer:x offset:8 atIndex:0];
         [encoder setBuffer:factors offset:4 atIndex:5];
         [encoder dispatchThreadgroups:MTLSizeMake(2, 1, 1)
                 threadsPerThreadgroup:MTLSizeMake(2, 1, 1)];
         [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
         // The buffers that are bound to other indices stay bound.
         [encoder setBuffer:factors offset:0 atIndex:5];
         Dispatch(encoder, 1, 1);
         Dispatch(encoder, 0, 1);  // a grid without threads
         [encoder endEncoding];
         Finish(commands);
         TORCH_CHECK(Floats(x)[1] == 9 && Floats(x)[2] == 6 &&
                     Floats(x)[5] == 12);
       }},
      {"events order two queues",
       [] {
         id<MTLBuffer> x = BufferWith({1, 1, 1, 1});
         id<MTLEvent> event = [MetalDevice() newEvent];
         id<MTLCommandBuffer> waits =
             [[MetalDevice() newCommandQueue] commandBuffer];
         [waits encodeWaitForEvent:event value:1];
         id<MTLBlitCommandEncoder> blit = [waits blitCommandEncoder];
         id<MTLBuffer> copy = BufferWith({0, 0, 0, 0});
         Copy(blit, x, 0, copy, 0, 16);
         [blit endEncoding];
         [waits commit];
         id<MTLCommandBuffer> signals =
             Scaling(x, {BufferWith({2}), BufferWith({3})});
         [signals encodeSignalEvent:event value:1];
         [signals commit];
         [waits waitUntilCompleted];
         TORCH_CHECK(Floats(copy)[3] == 6);
       }},

      // ---- libraries
      {"compile options",
       [] {
         MTLCompileOptions *options = [[MTLCompileOptions alloc] init];
         TORCH_CHECK([options mathMode] == MTLMathModeFast);
         [options setMathMode:MTLMathModeSafe];
         TORCH_CHECK(![options fastMathEnabled]);
         id<MTLLibrary> library = Compile(@"kernel void f(device float *x "
                                          @"[[buffer(0)]]) { x[0] *= 5; }",
                                          options);
         TORCH_CHECK([library newFunctionWithName:@"g"] == nil);
         id<MTLFunction> function = [library newFunctionWithName:@"f"];
         TORCH_CHECK([[function name] isEqualToString:@"f"]);
       }},
      {"data that is no compiled library is refused",
       [] {
         dispatch_data_t data = dispatch_data_create(
             "MTLB", 4, nullptr, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
         NSError *error = nil;
         id<MTLLibrary> library = [MetalDevice() newLibraryWithData:data
                                                              error:&error];
         TORCH_CHECK(library == nil);
         TORCH_CHECK([[error domain] isEqualToString:MTLLibraryErrorDomain]);
         dispatch_release(data);
       }},
      {"pipelines",
       [] {
         id<MTLComputePipelineState> pipeline = Pipeline("at_most_64_threads");
         TORCH_CHECK([pipeline maxTotalThreadsPerThreadgroup] == 64);
         TORCH_CHECK([pipeline threadExecutionWidth] == 32);
         TORCH_CHECK([Pipeline("big_threadgroup_memory")
                         staticThreadgroupMemoryLength] == 16384);
         id<MTLLibrary> library = Compile(
             @"kernel void f(device float *x [[buffer(0)]]) { x[0] = 1; }");
         MTLComputePipelineDescriptor *descriptor =
             [[MTLComputePipelineDescriptor alloc] init];
         [descriptor setComputeFunction:[library newFunctionWithName:@"f"]];
         [descriptor setMaxTotalThreadsPerThreadgroup:128];
         [descriptor setLabel:@"named"];
         NSError *error = nil;
         id<MTLComputePipelineState> made = [MetalDevice()
             newComputePipelineStateWithDescriptor:descriptor
                                           options:MTLPipelineOptionNone
                                        reflection:nil
                                             error:&error];
         TORCH_CHECK([made maxTotalThreadsPerThreadgroup] == 128);
         TORCH_CHECK([[made label] isEqualToString:@"named"]);
       }},

      // ---- torch's stream
      {"the stream's command buffer survives torch::mps::commit()",
       [] {
         id<MTLCommandBuffer> commands = StreamBuffer();
         CommitInQueue();
         TORCH_CHECK(StreamBuffer() == commands);
         [[commands blitCommandEncoder] endEncoding];
         torch::mps::synchronize();
       }},
      {"torch's own stream API",
       [] {
         at::mps::MPSStream *stream = at::mps::getCurrentMPSStream();
         TORCH_CHECK(stream == at::mps::getDefaultMPSStream());
         TORCH_CHECK(stream->queue() == torch::mps::get_dispatch_queue());
         TORCH_CHECK(stream->device() ==
                     at::mps::MPSDevice::getInstance()->device());
         id<MTLBuffer> x = BufferWith({1, 2, 3, 4});
         id<MTLBuffer> two = BufferWith({2});
         dispatch_sync(stream->queue(), ^{
           // The stream returns the same encoder for several kernels, and ends
           // the encoder later.
           id<MTLComputeCommandEncoder> encoder = stream->commandEncoder();
           TORCH_CHECK(encoder == stream->commandEncoder());
           EncodeScale(encoder, x, two);
         });
         // The start of another encoder ends the stream's encoder.
         [[StreamBuffer() blitCommandEncoder] endEncoding];
         TORCH_CHECK(Floats(x)[3] == 4);
         stream->synchronize(at::mps::SyncType::COMMIT_AND_WAIT);
         TORCH_CHECK(Floats(x)[3] == 8);
       }},
      {"completed handler that enters torch's queue",
       [] {
         // In the emulator, an operator that needs the results of the command
         // buffer runs the handler inside of the queue.  On a Mac, a thread of
         // Metal runs the handler.
         __block int handled = 0;
         [StreamBuffer() addCompletedHandler:^(id<MTLCommandBuffer>) {
           dispatch_sync(torch::mps::get_dispatch_queue(), ^{
             ++handled;
           });
         }];
         CommitInQueue();
         OnMps(3);
         TORCH_CHECK(handled == 1);
       }},
      {"completed handler of the stream's command buffer",
       [] {
         __block int handled = 0;
         [StreamBuffer() addCompletedHandler:^(id<MTLCommandBuffer>) {
           ++handled;
         }];
         CommitInQueue();
         TORCH_CHECK(handled == 0);
         torch::mps::synchronize();
         TORCH_CHECK(handled == 1);
       }},
  };
  return checks;
}

}  // namespace

std::vector<std::string> MetalChecks() { return NamesOf(Checks()); }

void RunMetalCheck(const std::string &name) { Run(Checks(), name); }
