// What torch.mps.compile_shader() and what it returns need, for the Python
// package, which calls these with ctypes.  They are programs of Metal as any
// other: compile, make a pipeline, encode on torch's stream.
//
// Functions that can fail return a message, which the caller frees, or null.
#include <ATen/mps/MPSStream.h>
#include <Metal/Metal.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "core/export.h"
#include "metal/dispatch_queue.h"

namespace mps_emulator {

namespace {

// The source of bytes, or a buffer, for an argument of a kernel.
struct Argument {
  void *buffer;  // an MTLBuffer, null for bytes
  uint64_t offset;
  const void *bytes;  // null for a buffer
  uint64_t size;
};

char *Copy(const char *text) { return strdup(text ? text : "unknown error"); }
char *Copy(NSError *error) {
  return Copy([[error localizedDescription] UTF8String]);
}

}  // namespace

// is_refusal: set where it is the compiler that refuses the source.
MPS_EMULATOR_EXPORT char *mps_emulator_compile_shader(const char *source,
                                                   int fast_math,
                                                   void **library,
                                                   int *is_refusal) {
  char *message = nullptr;
  @autoreleasepool {
    MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
    // What torch asks for on the macOS that the emulator says it is, 15.2.
    options.languageVersion = MTLLanguageVersion3_2;
    options.mathMode = fast_math ? MTLMathModeFast : MTLMathModeSafe;
    options.mathFloatingPointFunctions =
        fast_math ? MTLMathFloatingPointFunctionsFast
                  : MTLMathFloatingPointFunctionsPrecise;
    NSError *error = nil;
    *library = [MTLCreateSystemDefaultDevice()
        newLibraryWithSource:[NSString stringWithUTF8String:source]
                     options:options
                       error:&error];
    *is_refusal = *library == nil && [error code] ==
                                         (NSInteger)MTLLibraryErrorCompileFailure;
    if (!*library) message = Copy(error);
  }
  return message;
}

// The names of a library's kernels, one a line, to be freed.
MPS_EMULATOR_EXPORT char *mps_emulator_shader_names(void *library) {
  std::string names;
  @autoreleasepool {
    NSArray *found = [(id<MTLLibrary>)library functionNames];
    for (NSUInteger i = 0; i < [found count]; ++i) {
      names += [(NSString *)[found objectAtIndex:i] UTF8String];
      names += '\n';
    }
  }
  return strdup(names.c_str());
}

// limits: threads of a threadgroup at most, threads of a simdgroup, bytes of
// threadgroup memory.
MPS_EMULATOR_EXPORT char *mps_emulator_shader_kernel(void *library,
                                                  const char *name,
                                                  void **pipeline,
                                                  uint64_t *limits) {
  char *message = nullptr;
  @autoreleasepool {
    id<MTLFunction> function = [[(id<MTLLibrary>)library
        newFunctionWithName:[NSString stringWithUTF8String:name]] autorelease];
    if (!function) {
      std::string text = "Failed to create function state object for: ";
      return Copy((text + name).c_str());
    }
    NSError *error = nil;
    id<MTLComputePipelineState> made = [MTLCreateSystemDefaultDevice()
        newComputePipelineStateWithFunction:function
                                      error:&error];
    *pipeline = made;
    if (made) {
      limits[0] = [made maxTotalThreadsPerThreadgroup];
      limits[1] = [made threadExecutionWidth];
      limits[2] = [made staticThreadgroupMemoryLength];
    } else {
      message = Copy(error);
    }
  }
  return message;
}

// error_index: where the kernel takes torch's error buffer, -1 if nowhere.
MPS_EMULATOR_EXPORT char *mps_emulator_run_shader(void *pipeline,
                                               const Argument *arguments,
                                               uint64_t num_arguments,
                                               int64_t error_index,
                                               const uint64_t *threads,
                                               const uint64_t *group) {
  try {
    at::mps::MPSStream *stream = at::mps::getCurrentMPSStream();
    at::mps::dispatch_sync_with_rethrow(stream->queue(), ^() {
      @autoreleasepool {
        id<MTLComputeCommandEncoder> encoder = stream->commandEncoder();
        [encoder setComputePipelineState:(id<MTLComputePipelineState>)pipeline];
        for (uint64_t i = 0; i < num_arguments; ++i) {
          const Argument &argument = arguments[i];
          if (argument.bytes)
            [encoder setBytes:argument.bytes length:argument.size atIndex:i];
          else
            [encoder setBuffer:(id<MTLBuffer>)argument.buffer
                        offset:argument.offset
                       atIndex:i];
        }
        if (error_index >= 0)
          [encoder setBuffer:stream->getErrorBuffer()
                      offset:0
                     atIndex:error_index];
        [encoder dispatchThreads:MTLSizeMake(threads[0], threads[1], threads[2])
            threadsPerThreadgroup:MTLSizeMake(group[0], group[1], group[2])];
      }
    });
  } catch (const std::exception &error) {
    return Copy(error.what());
  }
  return nullptr;
}

// Releases a library or a pipeline.
MPS_EMULATOR_EXPORT void mps_emulator_release(void *object) {
  [(id)object release];
}

// The address at which the CPU reads and writes a buffer.
MPS_EMULATOR_EXPORT void *mps_emulator_contents(void *buffer) {
  return [(id<MTLBuffer>)buffer contents];
}

}  // namespace mps_emulator
