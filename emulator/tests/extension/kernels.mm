#include "extension.h"

#include <ATen/ops/empty.h>
#include <torch/mps.h>

#include <map>
#include <mutex>
#include <string>

namespace {

NSString *const kKernels = @R"(
#include <metal_stdlib>
using namespace metal;

kernel void axpy(device const float *x [[buffer(0)]],
                 device float *y [[buffer(1)]],
                 constant float &alpha [[buffer(2)]],
                 uint i [[thread_position_in_grid]]) {
  y[i] += alpha * x[i];
}

kernel void fill_with_index(device int *out [[buffer(0)]],
                            uint i [[thread_position_in_grid]]) {
  out[i] = int(i);
}

kernel void block_sums(device const float *x [[buffer(0)]],
                       device float *out [[buffer(1)]],
                       constant uint &n [[buffer(2)]],
                       threadgroup float *partial [[threadgroup(0)]],
                       uint lane [[thread_index_in_threadgroup]],
                       uint i [[thread_position_in_grid]],
                       uint group [[threadgroup_position_in_grid]]) {
  partial[lane] = i < n ? x[i] : 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint step = 128; step > 0; step /= 2) {
    if (lane < step) partial[lane] += partial[lane + step];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (lane == 0) out[group] = partial[0];
}

kernel void poke_at(device float *out [[buffer(0)]],
                    constant int &index [[buffer(1)]]) {
  out[index] = 1.0f;
}

kernel void scale(device float *x [[buffer(0)]],
                  device const float *factor [[buffer(5)]],
                  uint i [[thread_position_in_grid]]) {
  x[i] *= factor[0];
}

kernel void big_threadgroup_memory(device float *out [[buffer(0)]],
                                   threadgroup float *extra [[threadgroup(0)]],
                                   uint i [[thread_index_in_threadgroup]]) {
  threadgroup float own[4096];
  own[i] = out[i];
  extra[i] = own[i];
  out[i] = extra[i];
}

[[max_total_threads_per_threadgroup(64)]]
kernel void at_most_64_threads(device float *out [[buffer(0)]],
                               uint i [[thread_position_in_grid]]) {
  out[i] = 1.0f;
}
)";

id<MTLLibrary> Library() {
  static id<MTLLibrary> library = [] {
    NSError *error = nil;
    id<MTLLibrary> compiled = [MetalDevice() newLibraryWithSource:kKernels
                                                          options:nil
                                                            error:&error];
    TORCH_CHECK(compiled, [[error localizedDescription] UTF8String]);
    return compiled;
  }();
  return library;
}

void SetTensor(id<MTLComputeCommandEncoder> encoder, const at::Tensor &tensor,
               NSUInteger index) {
  [encoder setBuffer:BufferOf(tensor) offset:OffsetOf(tensor) atIndex:index];
}

// Runs `fill` on an encoder with the kernel's pipeline, and dispatches.
template <typename Fill>
void Encode(const char *kernel, NSUInteger threads, NSUInteger group,
            const Fill &fill) {
  @autoreleasepool {
    id<MTLComputePipelineState> pipeline = Pipeline(kernel);
    dispatch_sync(torch::mps::get_dispatch_queue(), ^{
      id<MTLCommandBuffer> buffer = torch::mps::get_command_buffer();
      id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
      [encoder setComputePipelineState:pipeline];
      fill(encoder);
      [encoder dispatchThreads:MTLSizeMake(threads, 1, 1)
          threadsPerThreadgroup:MTLSizeMake(group, 1, 1)];
      [encoder endEncoding];
    });
  }
}

}  // namespace

id<MTLComputePipelineState> Pipeline(const char *kernel) {
  static std::mutex mutex;
  static std::map<std::string, id<MTLComputePipelineState>> pipelines;
  std::lock_guard<std::mutex> lock(mutex);
  id<MTLComputePipelineState> &pipeline = pipelines[kernel];
  if (!pipeline) {
    NSError *error = nil;
    id<MTLFunction> function =
        [Library() newFunctionWithName:[NSString stringWithUTF8String:kernel]];
    TORCH_CHECK(function, "no kernel ", kernel);
    MTLComputePipelineDescriptor *descriptor =
        [[MTLComputePipelineDescriptor alloc] init];
    [descriptor setComputeFunction:function];
    std::string label = std::string("pipeline of ") + kernel;
    [descriptor setLabel:[NSString stringWithUTF8String:label.c_str()]];
    pipeline = [MetalDevice()
        newComputePipelineStateWithDescriptor:descriptor
                                      options:MTLPipelineOptionNone
                                   reflection:nil
                                        error:&error];
    [descriptor release];
    [function release];
    TORCH_CHECK(pipeline, [[error localizedDescription] UTF8String]);
  }
  return pipeline;
}

void Axpy(const at::Tensor &x, at::Tensor y, double alpha) {
  float factor = static_cast<float>(alpha);
  Encode("axpy", x.numel(), 64, [&](id<MTLComputeCommandEncoder> encoder) {
    SetTensor(encoder, x, 0);
    SetTensor(encoder, y, 1);
    [encoder setBytes:&factor length:sizeof(factor) atIndex:2];
  });
}

void FillWithIndex(at::Tensor out) {
  Encode("fill_with_index", out.numel(), 64,
         [&](id<MTLComputeCommandEncoder> encoder) {
           SetTensor(encoder, out, 0);
         });
}

at::Tensor BlockSums(const at::Tensor &x) {
  uint32_t n = static_cast<uint32_t>(x.numel());
  at::Tensor out = at::empty({(n + 255) / 256}, x.options());
  Encode("block_sums", out.numel() * 256, 256,
         [&](id<MTLComputeCommandEncoder> encoder) {
           SetTensor(encoder, x, 0);
           SetTensor(encoder, out, 1);
           [encoder setBytes:&n length:sizeof(n) atIndex:2];
           [encoder setThreadgroupMemoryLength:256 * sizeof(float) atIndex:0];
         });
  return out;
}

void PokeAt(at::Tensor out, int64_t index) {
  int32_t where = static_cast<int32_t>(index);
  Encode("poke_at", 1, 1, [&](id<MTLComputeCommandEncoder> encoder) {
    SetTensor(encoder, out, 0);
    [encoder setBytes:&where length:sizeof(where) atIndex:1];
  });
}
