// softshrink(x) is x - t if x > t, x + t if x < -t, and 0 otherwise.  A Metal
// kernel computes softshrink, and Python calls the kernel through a torch
// extension.
//
// This file does not depend on the emulator.  softshrink.py compiles the file.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <torch/extension.h>
#include <torch/mps.h>

static NSString *const kSource = @R"METAL(
#include <metal_stdlib>
using namespace metal;

kernel void softshrink(device const float *x [[buffer(0)]],
                       device float *y [[buffer(1)]],
                       constant float &threshold [[buffer(2)]],
                       uint i [[thread_position_in_grid]]) {
  y[i] = copysign(max(fabs(x[i]) - threshold, 0.0f), x[i]);
}
)METAL";

static id<MTLBuffer> BufferOf(const at::Tensor &tensor) {
  return __builtin_bit_cast(id<MTLBuffer>, tensor.storage().data());
}

static id<MTLComputePipelineState> MakePipeline() {
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  NSError *error = nil;
  id<MTLLibrary> library = [device newLibraryWithSource:kSource
                                                options:nil
                                                  error:&error];
  TORCH_CHECK(library != nil, [[error localizedDescription] UTF8String]);
  id<MTLComputePipelineState> pipeline = [device
      newComputePipelineStateWithFunction:[library
                                              newFunctionWithName:@"softshrink"]
                                    error:&error];
  TORCH_CHECK(pipeline != nil, [[error localizedDescription] UTF8String]);
  return pipeline;
}

// x: float32 on mps, of any shape.  Returns a tensor like x, and does not wait
// for the GPU.
static at::Tensor Softshrink(const at::Tensor &x, double threshold) {
  TORCH_CHECK(x.device().is_mps(), "softshrink: x must be on the mps device");
  TORCH_CHECK(x.scalar_type() == at::kFloat,
              "softshrink: x must be of float32");
  static id<MTLComputePipelineState> pipeline = MakePipeline();
  at::Tensor input = x.contiguous();
  at::Tensor output = at::empty_like(input);
  float t = threshold;
  if (x.numel() == 0) return output;
  dispatch_sync(torch::mps::get_dispatch_queue(), ^() {
    @autoreleasepool {
      id<MTLComputeCommandEncoder> encoder =
          [torch::mps::get_command_buffer() computeCommandEncoder];
      [encoder setComputePipelineState:pipeline];
      [encoder setBuffer:BufferOf(input)
                  offset:input.storage_offset() * input.element_size()
                 atIndex:0];
      [encoder setBuffer:BufferOf(output) offset:0 atIndex:1];
      [encoder setBytes:&t length:sizeof(t) atIndex:2];
      NSUInteger threads = std::min<NSUInteger>(
          [pipeline maxTotalThreadsPerThreadgroup], input.numel());
      [encoder dispatchThreads:MTLSizeMake(input.numel(), 1, 1)
          threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
      [encoder endEncoding];
    }
  });
  return output;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("softshrink", &Softshrink); }
