// torch's MetalShaderLibrary and MetalKernelFunction for extensions, and the C
// functions behind torch.mps.compile_shader(), which the Python package calls
// with ctypes.  All of them use Metal like any program: they compile, make a
// pipeline, and encode on torch's stream.
//
// A C function that can fail returns null or a message, which the caller frees.
#include <ATen/native/mps/OperationUtils.h>
#include <Metal/Metal.h>
#include <c10/util/StringUtil.h>
#include <fmt/args.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "core/export.h"
#include "metal/dispatch_queue.h"
#include "metal/foundation_internal.h"

namespace at::native::mps {

namespace {

std::string Text(NSError *error) {
  return mps_emulator::ToStdString([error localizedDescription]);
}

}  // namespace

void *get_tensor_gpu_address(const TensorBase &tensor) {
  return reinterpret_cast<void *>([getMTLBufferStorage(tensor) gpuAddress] +
                                  tensor.storage_offset() *
                                      tensor.element_size());
}

// ---- MetalKernelFunction

MetalKernelFunction::MetalKernelFunction(MTLComputePipelineState_t cps_,
                                         MTLFunction_t f_)
    : cps([cps_ retain]), func([f_ retain]) {}

MetalKernelFunction::~MetalKernelFunction() {
  [cps release];
  [func release];
}

uint64_t MetalKernelFunction::getMaxThreadsPerThreadgroup() const {
  return [cps maxTotalThreadsPerThreadgroup];
}

uint64_t MetalKernelFunction::getThreadExecutionWidth() const {
  return [cps threadExecutionWidth];
}

uint64_t MetalKernelFunction::getStaticThreadGroupMemoryLength() const {
  return [cps staticThreadgroupMemoryLength];
}

void MetalKernelFunction::runCommandBlock(std::function<void(void)> f) {
  dispatch_sync_with_rethrow(getCurrentMPSStream()->queue(), ^() {
    @autoreleasepool {
      f();
    }
  });
}

void MetalKernelFunction::startEncoding() {
  encoder = getCurrentMPSStream()->commandEncoder();
  [encoder setComputePipelineState:cps];
}

void MetalKernelFunction::setArg(unsigned idx, const TensorBase &t) {
  mtl_setBuffer(encoder, t, idx);
}

void MetalKernelFunction::setArg(unsigned idx, const void *ptr, uint64_t size) {
  TORCH_CHECK(size > 0);
  [encoder setBytes:ptr length:size atIndex:idx];
}

void MetalKernelFunction::setErrorBufferIndex(unsigned idx) {
  [encoder setBuffer:getCurrentMPSStream()->getErrorBuffer()
              offset:0
             atIndex:idx];
}

void MetalKernelFunction::dispatch(uint64_t length,
                                   std::optional<uint64_t> groupSize) {
  const uint64_t most = getMaxThreadsPerThreadgroup();
  const uint64_t group = groupSize.value_or(std::min(length, most));
  dispatch(ArrayRef<uint64_t>(length), ArrayRef<uint64_t>(group));
}

void MetalKernelFunction::dispatch(ArrayRef<uint64_t> length,
                                   OptionalArrayRef<uint64_t> groupSize) {
  TORCH_CHECK(!length.empty() && length.size() < 4,
              "Dispatch dimensions must be less than 3 and non-empty");
  TORCH_CHECK(!groupSize.has_value() || groupSize->size() == length.size(),
              "size and group_size must have same number of dimensions");
  const uint64_t most = getMaxThreadsPerThreadgroup();
  uint64_t threads[3] = {1, 1, 1}, group[3] = {most, 1, 1};
  for (size_t i = 0; i < length.size(); ++i) {
    threads[i] = length[i];
    if (groupSize.has_value()) group[i] = (*groupSize)[i];
  }
  TORCH_CHECK_VALUE(group[0] * group[1] * group[2] <= most,
                    "Threadgroup size exceeds ", most, " limit");
  [encoder dispatchThreads:MTLSizeMake(threads[0], threads[1], threads[2])
      threadsPerThreadgroup:MTLSizeMake(group[0], group[1], group[2])];
}

// ---- MetalShaderLibrary

MetalShaderLibrary::~MetalShaderLibrary() {
  for (const auto &[name, pair] : cplMap) {
    [pair.first release];
    [pair.second release];
  }
}

DynamicMetalShaderLibrary::~DynamicMetalShaderLibrary() { [library release]; }

PrecompiledMetalShaderLibrary::PrecompiledMetalShaderLibrary(
    std::vector<uint8_t>)
    : MetalShaderLibrary("") {
  TORCH_CHECK(false,
              "Failed to load metallib: it has code for Apple's GPUs. The "
              "emulator compiles Metal sources: use MetalShaderLibrary.");
}

PrecompiledMetalShaderLibrary::PrecompiledMetalShaderLibrary(
    const std::string &)
    : PrecompiledMetalShaderLibrary(std::vector<uint8_t>()) {}

PrecompiledMetalShaderLibrary::~PrecompiledMetalShaderLibrary() = default;

MTLLibrary_t MetalShaderLibrary::compileLibrary(const std::string &src) {
  @autoreleasepool {
    MTLCompileOptions *options = compile_options;
    if (!options) {
      const char *given = std::getenv("PYTORCH_MPS_FAST_MATH");
      const bool fast = given && std::strcmp(given, "0") != 0;
      options = [[MTLCompileOptions new] autorelease];
      // torch's choice on macOS 15.2, the release that the emulator reports.
      options.languageVersion = MTLLanguageVersion3_2;
      options.mathMode = fast ? MTLMathModeFast : MTLMathModeSafe;
      options.mathFloatingPointFunctions =
          fast ? MTLMathFloatingPointFunctionsFast
               : MTLMathFloatingPointFunctionsPrecise;
    }
    NSError *error = nil;
    MTLLibrary_t made = [MPSDevice::getInstance()->device()
        newLibraryWithSource:mps_emulator::ToNSString(src)
                     options:options
                       error:&error];
    if (made) return made;
    const std::string text =
        "Failed to create metal library, error: " + Text(error);
    if ([error code] == static_cast<NSInteger>(MTLLibraryErrorCompileFailure))
      C10_THROW_ERROR(SyntaxError, text);
    TORCH_CHECK(false, text);
  }
}

MTLLibrary_t MetalShaderLibrary::getLibrary() {
  if (!library) {
    TORCH_INTERNAL_ASSERT(nparams == 0);
    library = compileLibrary(shaderSource);
  }
  return library;
}

MTLLibrary_t MetalShaderLibrary::getLibrary(
    const std::initializer_list<std::string> &params) {
  TORCH_INTERNAL_ASSERT(nparams == params.size());
  MTLLibrary_t &made = libMap[c10::Join(":", std::vector<std::string>(params))];
  if (!made) {
    fmt::dynamic_format_arg_store<fmt::format_context> store;
    for (const std::string &param : params) store.push_back(param);
    made = compileLibrary(fmt::vformat(shaderSource, store));
  }
  return made;
}

std::pair<MTLComputePipelineState_t, MTLFunction_t>
MetalShaderLibrary::getLibraryPipelineState(MTLLibrary_t lib,
                                            const std::string &fname) {
  const std::string key = fmt::format("{}:{}", fmt::ptr((void *)lib), fname);
  auto found = cplMap.find(key);
  if (found != cplMap.end()) return found->second;
  @autoreleasepool {
    MTLFunction_t function =
        [lib newFunctionWithName:mps_emulator::ToNSString(fname)];
    TORCH_CHECK(function,
                "Failed to create function state object for: ", fname);
    NSError *error = nil;
    MTLComputePipelineState_t pipeline =
        [[lib device] newComputePipelineStateWithFunction:function
                                                    error:&error];
    TORCH_CHECK(pipeline, "Failed to created pipeline state object, error: ",
                Text(error));
    return cplMap[key] = {pipeline, function};
  }
}

std::vector<std::string> MetalShaderLibrary::getFunctionNames() {
  std::vector<std::string> names;
  @autoreleasepool {
    for (NSString *name in [getLibrary() functionNames])
      names.push_back(mps_emulator::ToStdString(name));
  }
  return names;
}

bool MetalShaderLibrary::hasFunction(const std::string &fname) {
  if (!functionNamesPopulated) {
    for (std::string &name : getFunctionNames())
      functionNames.insert(std::move(name));
    functionNamesPopulated = true;
  }
  return functionNames.count(fname) != 0;
}

std::shared_ptr<MetalKernelFunction> MetalShaderLibrary::getKernelFunction(
    const std::string &name) {
  auto [pipeline, function] = getLibraryPipelineState(getLibrary(), name);
  return std::make_shared<MetalKernelFunction>(pipeline, function);
}

MetalKernelFunction *MetalShaderLibrary::getCachedKernelFunctionPtr(
    const std::string &name) {
  std::unique_ptr<MetalKernelFunction> &kernel = kernelCache[name];
  if (!kernel) {
    auto [pipeline, function] = getLibraryPipelineState(getLibrary(), name);
    kernel = std::make_unique<MetalKernelFunction>(pipeline, function);
  }
  return kernel.get();
}

}  // namespace at::native::mps

namespace mps_emulator {

namespace {

using at::native::mps::DynamicMetalShaderLibrary;

// An argument of a kernel: a buffer, or bytes.
struct Argument {
  void *buffer;  // an MTLBuffer, null for bytes
  uint64_t offset;
  const void *bytes;  // null for a buffer
  uint64_t size;
};

char *Copy(const char *text) { return strdup(text ? text : "unknown error"); }

// A c10::Error's message without the place in the emulator that raised it.
char *Copy(const std::exception &error) {
  auto *of_torch = dynamic_cast<const c10::Error *>(&error);
  return Copy(of_torch ? of_torch->what_without_backtrace() : error.what());
}

}  // namespace

// is_refusal: set to 1 if the compiler refuses the source.
MPS_EMULATOR_EXPORT char *mps_emulator_compile_shader(const char *source,
                                                      void **library,
                                                      int *is_refusal) {
  *is_refusal = 0;
  try {
    *library = new DynamicMetalShaderLibrary(source);
    return nullptr;
  } catch (const c10::SyntaxError &error) {
    *is_refusal = 1;
    return Copy(error);
  } catch (const std::exception &error) {
    return Copy(error);
  }
}

MPS_EMULATOR_EXPORT void mps_emulator_delete_shader(void *library) {
  delete static_cast<DynamicMetalShaderLibrary *>(library);
}

// The names of a library's kernels, one on each line; the caller frees the
// text.
MPS_EMULATOR_EXPORT char *mps_emulator_shader_names(void *library) {
  std::string names;
  for (const std::string &name :
       static_cast<DynamicMetalShaderLibrary *>(library)->getFunctionNames())
    names += name + '\n';
  return strdup(names.c_str());
}

// A pipeline, which lives as long as the library.
//
// limits: the most threads of a threadgroup, the threads of a SIMD group, the
// bytes of threadgroup memory.
MPS_EMULATOR_EXPORT char *mps_emulator_shader_kernel(void *library,
                                                     const char *name,
                                                     void **pipeline,
                                                     uint64_t *limits) {
  try {
    id<MTLComputePipelineState> made =
        static_cast<DynamicMetalShaderLibrary *>(library)
            ->getPipelineStateForFunc(name);
    *pipeline = made;
    limits[0] = [made maxTotalThreadsPerThreadgroup];
    limits[1] = [made threadExecutionWidth];
    limits[2] = [made staticThreadgroupMemoryLength];
    return nullptr;
  } catch (const std::exception &error) {
    return Copy(error);
  }
}

// error_index: the index of torch's error buffer, -1 if the kernel takes none.
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
    return Copy(error);
  }
  return nullptr;
}

// The address at which the CPU reads and writes a buffer.
MPS_EMULATOR_EXPORT void *mps_emulator_contents(void *buffer) {
  return [(id<MTLBuffer>)buffer contents];
}

}  // namespace mps_emulator
