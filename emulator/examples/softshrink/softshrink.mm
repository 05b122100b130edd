// softshrink(x) = x - t where x > t, x + t where x < -t, and 0 between: a
// custom Metal kernel behind a torch operator, forward and backward.
//
// Nothing here knows the emulator.  See softshrink.py.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <torch/extension.h>
#include <torch/mps.h>

static const char *kSource = R"METAL(
#include <metal_stdlib>
using namespace metal;

template <typename T>
[[kernel]] void softshrink(device const T *x [[buffer(0)]],
                           device T *y [[buffer(1)]],
                           constant float &threshold [[buffer(2)]],
                           uint i [[thread_position_in_grid]]) {
  float value = x[i];
  float shrunk = max(fabs(value) - threshold, 0.0f);
  y[i] = T(copysign(shrunk, value));
}

// The gradient passes where the forward value is not 0.
template <typename T>
[[kernel]] void softshrink_backward(device const T *x [[buffer(0)]],
                                    device T *gradient [[buffer(1)]],
                                    constant float &threshold [[buffer(2)]],
                                    uint i [[thread_position_in_grid]]) {
  if (fabs(float(x[i])) <= threshold) gradient[i] = T(0);
}

#define INSTANTIATE(T)                                                    \
  template [[host_name("softshrink_" #T)]] [[kernel]] void softshrink<T>( \
      device const T *, device T *, constant float &, uint);              \
  template [[host_name("softshrink_backward_" #T)]] [[kernel]] void       \
  softshrink_backward<T>(device const T *, device T *, constant float &, uint);
INSTANTIATE(float)
INSTANTIATE(half)
)METAL";

static id<MTLBuffer> BufferOf(const at::Tensor &tensor) {
  return __builtin_bit_cast(id<MTLBuffer>, tensor.storage().data());
}

// A pipeline, compiled at its first use.
static id<MTLComputePipelineState> PipelineOf(const std::string &name) {
  static std::unordered_map<std::string, id<MTLComputePipelineState>> pipelines;
  id<MTLComputePipelineState> &pipeline = pipelines[name];
  if (pipeline != nil) return pipeline;
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  NSError *error = nil;
  id<MTLLibrary> library =
      [device newLibraryWithSource:[NSString stringWithUTF8String:kSource]
                           options:nil
                             error:&error];
  TORCH_CHECK(library != nil, [[error localizedDescription] UTF8String]);
  id<MTLFunction> function = [library
      newFunctionWithName:[NSString stringWithUTF8String:name.c_str()]];
  TORCH_CHECK(function != nil, "no kernel ", name);
  pipeline = [device newComputePipelineStateWithFunction:function error:&error];
  TORCH_CHECK(pipeline != nil, [[error localizedDescription] UTF8String]);
  return pipeline;
}

// Encodes a kernel over x and y of one shape, without a wait.
static void Encode(const std::string &kernel, const at::Tensor &x,
                   const at::Tensor &y, float threshold) {
  TORCH_CHECK(x.device().is_mps(), "softshrink: x must be on the mps device");
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kHalf,
              "softshrink: x must be of float32 or float16");
  if (x.numel() == 0) return;
  std::string type = x.scalar_type() == at::kHalf ? "_half" : "_float";
  id<MTLComputePipelineState> pipeline = PipelineOf(kernel + type);
  @autoreleasepool {
    dispatch_sync(torch::mps::get_dispatch_queue(), ^() {
      id<MTLComputeCommandEncoder> encoder =
          [torch::mps::get_command_buffer() computeCommandEncoder];
      [encoder setComputePipelineState:pipeline];
      [encoder setBuffer:BufferOf(x)
                  offset:x.storage_offset() * x.element_size()
                 atIndex:0];
      [encoder setBuffer:BufferOf(y)
                  offset:y.storage_offset() * y.element_size()
                 atIndex:1];
      [encoder setBytes:&threshold length:sizeof(threshold) atIndex:2];
      NSUInteger threads = [pipeline maxTotalThreadsPerThreadgroup];
      threads = std::min<NSUInteger>(threads, x.numel());
      [encoder dispatchThreads:MTLSizeMake(x.numel(), 1, 1)
          threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
      [encoder endEncoding];
    });
  }
}

// x: float32 or float16 on mps, of any shape.  Returns the same.
static at::Tensor Softshrink(const at::Tensor &x, double threshold) {
  at::Tensor input = x.contiguous();
  at::Tensor output = at::empty_like(input);
  Encode("softshrink", input, output, threshold);
  return output;
}

static at::Tensor SoftshrinkBackward(const at::Tensor &gradient,
                                     const at::Tensor &x, double threshold) {
  at::Tensor output = gradient.clone(at::MemoryFormat::Contiguous);
  Encode("softshrink_backward", x.contiguous(), output, threshold);
  return output;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &Softshrink);
  m.def("backward", &SoftshrinkBackward);
}
