#include "extension.h"

#include <map>
#include <mutex>
#include <string>

namespace {

NSString *const kKernels = @R"(
#include <metal_stdlib>
using namespace metal;

kernel void fill_with_index(device int *out [[buffer(0)]],
                            uint i [[thread_position_in_grid]]) {
  out[i] = int(i);
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

kernel void increment(device float *x, uint i [[thread_position_in_grid]]) {
  x[i] += 1;
}

kernel void reverse(device const float *x, device float *y,
                    uint i [[thread_position_in_grid]]) {
  y[i] = x[63 - i];
}

kernel void copy_even_bytes(device const uchar *x, device uchar *y,
                            uint i [[thread_position_in_grid]]) {
  y[2 * i] = x[2 * i];
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
kernel void increment_by_address(constant Arguments &arguments,
                             uint i [[thread_position_in_grid]]) {
  arguments.x[i] += 1;
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
