// The C functions for torch.mps.compile_shader().  The Python package calls
// these functions with ctypes.  The functions use Metal as any program does:
// they compile, make a pipeline, and encode on torch's stream.
//
// A function that can fail returns nullptr, or a message that the caller must
// free.
#include <ATen/mps/MPSAllocatorInterface.h>
#include <ATen/mps/MPSDevice.h>
#include <ATen/mps/MPSStream.h>
#include <Metal/Metal.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "core/export.h"
#include "metal/dispatch_queue.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

MPS_EMULATOR_EXPORT void *mps_emulator_buffer_of(const void *pointer);

namespace mps_emulator {

namespace {

// An argument of a kernel: a buffer, or bytes.
struct Argument {
  void *buffer;  // the data pointer of a storage, null for bytes
  uint64_t offset;
  const void *bytes;  // null for a buffer
  uint64_t size;
};

char *Message(const char *failed, NSError *error) {
  return strdup((failed + ToStdString([error localizedDescription])).c_str());
}

// PYTORCH_MPS_FAST_MATH=1 selects fast math.  The default is safe math, as with
// torch on macOS 15.2, the release that the emulator reports.
MTLCompileOptions *Options() {
  const char *given = std::getenv("PYTORCH_MPS_FAST_MATH");
  const bool fast = given && std::strcmp(given, "0") != 0;
  MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
  options.mathMode = fast ? MTLMathModeFast : MTLMathModeSafe;
  return options;
}

}  // namespace

// Compiles `source` and sets `*library`.  Sets `*is_refusal` to 1 if the
// compiler refuses the source.
MPS_EMULATOR_EXPORT char *mps_emulator_compile_shader(const char *source,
                                                      void **library,
                                                      int *is_refusal) {
  @autoreleasepool {
    NSError *error = nil;
    *library = [at::mps::MPSDevice::getInstance()->device()
        newLibraryWithSource:ToNSString(source)
                     options:Options()
                       error:&error];
    *is_refusal =
        [error code] == static_cast<NSInteger>(MTLLibraryErrorCompileFailure);
    return *library ? nullptr
                    : Message("Failed to create metal library, error: ", error);
  }
}

// Loads a .metallib and sets `*library`.
MPS_EMULATOR_EXPORT char *mps_emulator_load_metallib(const char *content,
                                                     uint64_t size,
                                                     void **library) {
  @autoreleasepool {
    NSError *error = nil;
    dispatch_data_t data = dispatch_data_create(
        content, size, nullptr, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
    *library =
        [at::mps::MPSDevice::getInstance()->device() newLibraryWithData:data
                                                                  error:&error];
    dispatch_release(data);
    return *library ? nullptr
                    : Message("Failed to create metal library, error: ", error);
  }
}

// Releases `object`, a library or a pipeline.
MPS_EMULATOR_EXPORT void mps_emulator_release(void *object) {
  [(id)object release];
}

// Returns the names of a library's kernels, each with a newline after it.  The
// caller must free the text.
MPS_EMULATOR_EXPORT char *mps_emulator_shader_names(void *library) {
  std::string names;
  // The Python package reads the names of a .metallib.
  for (const msl::Kernel &kernel :
       (*static_cast<MPSEmulatorLibrary *>(library)->_library)->kernels)
    names += std::string(kernel.name) + '\n';
  return strdup(names.c_str());
}

// Sets `*pipeline` to a new pipeline.
//
// limits: set to three numbers: how many threads a threadgroup can have, how
//   many threads a simdgroup has, and how many bytes of threadgroup memory the
//   kernel declares.
MPS_EMULATOR_EXPORT char *mps_emulator_shader_kernel(void *library,
                                                     const char *name,
                                                     void **pipeline,
                                                     uint64_t *limits) {
  @autoreleasepool {
    id<MTLFunction> function = [[(id<MTLLibrary>)library
        newFunctionWithName:ToNSString(name)] autorelease];
    if (!function)
      return strdup(
          ("Failed to create function state object for: " + std::string(name))
              .c_str());
    NSError *error = nil;
    id<MTLComputePipelineState> made = [[(id<MTLLibrary>)library device]
        newComputePipelineStateWithFunction:function
                                      error:&error];
    if (!made)
      return Message("Failed to created pipeline state object, error: ", error);
    *pipeline = made;
    limits[0] = [made maxTotalThreadsPerThreadgroup];
    limits[1] = [made threadExecutionWidth];
    limits[2] = [made staticThreadgroupMemoryLength];
    return nullptr;
  }
}

// Encodes a dispatch on the current stream.
//
// threads, group: the three sizes of the grid and of a threadgroup, in threads.
// error_index: the index of torch's error buffer; -1 if the kernel takes none.
MPS_EMULATOR_EXPORT char *mps_emulator_run_shader(
    void *pipeline, const Argument *arguments, uint64_t num_arguments,
    int64_t error_index, const uint64_t *threads, const uint64_t *group) {
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
            [encoder
                setBuffer:(id<MTLBuffer>)mps_emulator_buffer_of(argument.buffer)
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
    // The message of a c10::Error, without the backtrace.
    auto *torch_error = dynamic_cast<const c10::Error *>(&error);
    return strdup(torch_error ? torch_error->what_without_backtrace()
                              : error.what());
  }
  return nullptr;
}

// Returns the address at which the CPU can access the memory of a data pointer.
MPS_EMULATOR_EXPORT void *mps_emulator_contents(void *pointer) {
  return [(id<MTLBuffer>)mps_emulator_buffer_of(pointer) contents];
}

MPS_EMULATOR_EXPORT bool mps_emulator_wait_for_events(
    const void *const *buffers, size_t count) {
  return at::mps::getIMPSAllocator()->waitForEvents({buffers, count});
}

}  // namespace mps_emulator
