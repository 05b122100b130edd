// The parts of <ATen/native/mps/OperationUtils.h> that extensions use: torch's
// helpers and its class for libraries of kernels.
#include "extension.h"

#include <ATen/native/mps/OperationUtils.h>

namespace {

using namespace at::native::mps;

const char *kShader = R"(
#include <metal_stdlib>
using namespace metal;
kernel void multiply(device float *x [[buffer(0)]],
                     constant float &factor [[buffer(1)]],
                     constant long *added [[buffer(2)]],
                     uint i [[thread_position_in_grid]]) {{
  x[i] = x[i] * factor + {0}(added[0] + added[1]);
}}
)";

}  // namespace

void MultiplyWithHelpers(at::Tensor x, double factor,
                         std::vector<int64_t> added) {
  static MetalShaderLibrary library(kShader, 1);
  id<MTLComputePipelineState> pipeline =
      library.getPipelineStateForFunc("multiply", {"float"});
  at::mps::MPSStream *stream = at::mps::getCurrentMPSStream();
  at::mps::dispatch_sync_with_rethrow(stream->queue(), ^() {
    @autoreleasepool {
      id<MTLComputeCommandEncoder> encoder = stream->commandEncoder();
      getMPSProfiler().beginProfileKernel(pipeline, "multiply", {x});
      [encoder setComputePipelineState:pipeline];
      mtl_setArgs(encoder, x, factor, added);
      mtl_dispatch1DJob(encoder, pipeline, x.numel());
      getMPSProfiler().endProfileKernel(pipeline);
    }
  });
}

void NegateWithKernelFunction(at::Tensor x) {
  static DynamicMetalShaderLibrary library(
      "kernel void negate(device float *x, "
      "uint2 i [[thread_position_in_grid]]) {"
      "  x[i.y * 4 + i.x] = -x[i.y * 4 + i.x]; }");
  TORCH_CHECK(library.getFunctionNames() == std::vector<std::string>{"negate"});
  TORCH_CHECK(library.hasFunction("negate") && !library.hasFunction("other"));
  std::shared_ptr<MetalKernelFunction> kernel =
      library.getKernelFunction("negate");
  TORCH_CHECK(library.getCachedKernelFunctionPtr("negate") ==
              library.getCachedKernelFunctionPtr("negate"));
  kernel->runCommandBlock([&] {
    kernel->startEncoding();
    kernel->setArg(0, x);
    std::array<uint64_t, 2> threads = {4, uint64_t(x.numel() / 4)};
    std::array<uint64_t, 2> group = {4, 1};
    kernel->dispatch(threads, at::ArrayRef<uint64_t>(group));
  });
}

std::string DescribeForMps(const at::Tensor &x) {
  @autoreleasepool {
    return scalarToMetalTypeString(x) + " " + getMPSTypeString(x, true) + " " +
           std::to_string(getMPSDataType(x)) + " " +
           getMPSShapeString(getMPSShape(x)) + " " +
           std::to_string(compute_storage_numel_distance(x));
  }
}

void CallClosedPart(const std::string &name) {
  if (name == "graph") {
    LookUpOrCreateCachedGraph<MPSUnaryCachedGraph>(
        "key", [](MPSGraph *, MPSUnaryCachedGraph *) {});
  } else if (name == "bundled") {
    MetalShaderLibrary::getBundledLibrary();
  } else if (name == "metallib") {
    PrecompiledMetalShaderLibrary(std::vector<uint8_t>(8));
  } else {
    Placeholder(nullptr, at::Tensor());
  }
}
