// Compiles kernels with Metal's driver, as k2/csrc/mps/metal.mm does, and
// prints what the driver says.  compiler.py builds and loads this file.

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace {

double Milliseconds(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - begin)
      .count();
}

const char *TextOf(NSError *error) {
  return error == nil ? "no reason given"
                      : [[error localizedDescription] UTF8String];
}

}  // namespace

// Prints the facts of torch's GPU as items.measured() prints a measured thing.
extern "C" void report_device() {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (device == nil) {
      printf("Metal finds no device\n");
      return;
    }
    printf("measured: {\"gpu\": \"%s\"", [[device name] UTF8String]);
    printf(", \"recommended_bytes\": %llu",
           static_cast<unsigned long long>(  // NOLINT
               [device recommendedMaxWorkingSetSize]));
    printf(", \"max_buffer_bytes\": %llu",
           static_cast<unsigned long long>([device maxBufferLength]));  // NOLINT
#if defined(__APPLE__)
    printf(", \"unified_memory\": %d", [device hasUnifiedMemory]);
    printf(", \"threadgroup_bytes\": %llu",
           static_cast<unsigned long long>(  // NOLINT
               [device maxThreadgroupMemoryLength]));
    // MTLGPUFamilyApple1 is 1001.  Newer families follow, also those that this
    // SDK does not know.
    int apple = 0;
    for (int family = 1; family != 20; ++family)
      if ([device supportsFamily:static_cast<MTLGPUFamily>(1000 + family)])
        apple = family;
    printf(", \"family_apple\": %d", apple);
    printf(", \"family_mac2\": %d", [device supportsFamily:MTLGPUFamilyMac2]);
    printf(", \"family_metal3\": %d",
           [device supportsFamily:static_cast<MTLGPUFamily>(5001)]);
    printf(", \"thermal_state\": %ld",
           static_cast<long>(  // NOLINT
               [[NSProcessInfo processInfo] thermalState]));
    printf(", \"low_power_mode\": %d",
           [[NSProcessInfo processInfo] isLowPowerModeEnabled]);
#endif
    printf("}\n");
    fflush(stdout);
  }
}

// Compiles a text of kernels with k2's options, then makes a pipeline of each
// kernel.  Returns 0 if all of it compiles.  Before a pipeline is made, the
// name of its kernel is printed, so that a crash tells where.  `kernels` may
// have the names of templates, too.
extern "C" int report_compile(const char *text, const char **kernels,
                              int num_kernels) {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (device == nil) {
      printf("Metal finds no device\n");
      return 1;
    }
    MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
    // As in TurnFastMathOff() of metal.mm.
    bool has_math_mode = false;
#if __MAC_OS_X_VERSION_MAX_ALLOWED >= 150000
    if (@available(macOS 15.0, *)) {
      has_math_mode = true;
      options.mathMode = MTLMathModeSafe;
      options.mathFloatingPointFunctions =
          MTLMathFloatingPointFunctionsPrecise;
    }
#endif
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
    if (!has_math_mode) options.fastMathEnabled = NO;
    NSError *error = nil;
    auto begin = std::chrono::steady_clock::now();
    id<MTLLibrary> library =
        [device newLibraryWithSource:[NSString stringWithUTF8String:text]
                             options:options
                               error:&error];
    if (library == nil) {
      printf("the driver cannot compile the file:\n%s\n", TextOf(error));
      fflush(stdout);
      return 1;
    }
    printf("measured: {\"file_milliseconds\": %.1f}\n", Milliseconds(begin));
    fflush(stdout);
    int status = 0;
    for (int i = 0; i != num_kernels; ++i) {
      printf("pipeline of %s\n", kernels[i]);
      fflush(stdout);
      id<MTLFunction> function = [library
          newFunctionWithName:[NSString stringWithUTF8String:kernels[i]]];
      if (function == nil) {
        // The kernels' checks fail if a kernel is missing.
        printf("%s is the template of kernels\n", kernels[i]);
        continue;
      }
      MTLComputePipelineDescriptor *descriptor =
          [[MTLComputePipelineDescriptor new] autorelease];
      descriptor.computeFunction = function;
      error = nil;
      begin = std::chrono::steady_clock::now();
      id<MTLComputePipelineState> pipeline =
          [device newComputePipelineStateWithDescriptor:descriptor
                                                options:MTLPipelineOptionNone
                                             reflection:nil
                                                  error:&error];
      if (pipeline == nil) {
        printf("no pipeline of the kernel %s:\n%s\n", kernels[i],
               TextOf(error));
        status = 1;
        continue;
      }
      printf(
          "measured: {\"kernel\": \"%s\", \"max_threads\": %d, "
          "\"simd_width\": %d, \"threadgroup_bytes\": %d, "
          "\"pipeline_milliseconds\": %.2f}\n",
          kernels[i],
          static_cast<int>([pipeline maxTotalThreadsPerThreadgroup]),
          static_cast<int>([pipeline threadExecutionWidth]),
          static_cast<int>([pipeline staticThreadgroupMemoryLength]),
          Milliseconds(begin));
      fflush(stdout);
    }
    return status;
  }
}
