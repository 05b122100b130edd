/**
 * Copyright      2026  The k2-mps authors
 *
 * See LICENSE for clarification regarding multiple authors
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include "k2/csrc/mps/metal.h"

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <dispatch/dispatch.h>

#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "ATen/mps/MPSDevice.h"
#include "k2/csrc/log.h"
#include "k2/csrc/mps/buffer.h"
#include "k2/csrc/mps/stream.h"

namespace k2 {
namespace mps {

namespace {

struct Source {
  const char *text;
  const unsigned char *metallib;
  size_t size;
};

std::map<std::string, Source> &Sources() {
  static auto *sources = new std::map<std::string, Source>;
  return *sources;
}

std::string TextOf(NSError *error) {
  return error == nil ? "no reason given"
                      : [[error localizedDescription] UTF8String];
}

NSString *ToNSString(const std::string &s) {
  return [NSString stringWithUTF8String:s.c_str()];
}

// Fast math assumes that no number is infinite or NaN.  Scores may be infinite,
// and a NaN must remain a NaN.
void TurnFastMathOff(MTLCompileOptions *options) {
#if __MAC_OS_X_VERSION_MAX_ALLOWED >= 150000
  if (@available(macOS 15.0, *)) {
    options.mathMode = MTLMathModeSafe;
    options.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
    return;
  }
#endif
  // The headers of macOS 15 deprecate fastMathEnabled for code that runs only
  // on macOS 15 or later.  On such systems, this function has returned above.
#if __MAC_OS_X_VERSION_MAX_ALLOWED < 150000 || \
    __MAC_OS_X_VERSION_MIN_REQUIRED < 150000
  options.fastMathEnabled = NO;
#endif
}

// The label that Instruments and Xcode show for a kernel's encoder and
// pipeline.
std::string LabelOf(const std::string &kernel) { return "k2 " + kernel; }

// The compiled kernels of this process.  The kernels are never released.
class Pipelines {
 public:
  static Pipelines &Get() {
    static auto *pipelines = new Pipelines;
    return *pipelines;
  }

  // Returns the pipeline of a kernel.  The first call for a kernel compiles the
  // kernel, which may take a second.
  id<MTLComputePipelineState> Find(id<MTLDevice> device,
                                   const std::string &source,
                                   const std::string &kernel) {
    std::lock_guard<std::mutex> lock(mutex_);
    return CompiledKernel(device, source, kernel).pipeline;
  }

  // Does what Find() does, for a launch.  Notes the arguments of the launch for
  // Passed(); see PassedArguments.
  id<MTLComputePipelineState> FindForLaunch(id<MTLDevice> device,
                                            const std::string &source,
                                            const std::string &kernel,
                                            uint32_t in, uint32_t out) {
    std::lock_guard<std::mutex> lock(mutex_);
    Kernel &found = CompiledKernel(device, source, kernel);
    found.in |= in;
    found.out |= out;
    return found.pipeline;
  }

  std::vector<PassedArguments> Passed() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<PassedArguments> passed;
    for (const auto &[name, kernel] : kernels_) {
      const bool is_launched = kernel.in != 0 || kernel.out != 0;
      if (is_launched)
        passed.push_back({name.first, name.second, kernel.in, kernel.out});
    }
    return passed;
  }

 private:
  struct Kernel {
    id<MTLComputePipelineState> pipeline = nil;
    uint32_t in = 0, out = 0;  // see PassedArguments
  };

  // Compiles the kernel if no earlier call did.  The caller holds mutex_.
  Kernel &CompiledKernel(id<MTLDevice> device, const std::string &source,
                         const std::string &kernel) {
    Kernel &found = kernels_[{source, kernel}];
    if (found.pipeline == nil) {
      @autoreleasepool {
        found.pipeline = Compile(device, source, kernel);
      }
    }
    return found;
  }

  id<MTLLibrary> Library(id<MTLDevice> device, const std::string &source) {
    id<MTLLibrary> &library = libraries_[source];
    if (library != nil) return library;

    auto it = Sources().find(source);
    K2_CHECK(it != Sources().end())
        << "There is no kernel source " << source << ".metal in this k2";

    library = Precompiled(device, source, it->second);
    if (library != nil) return library;

    MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
    TurnFastMathOff(options);
    NSError *error = nil;
    library =
        [device newLibraryWithSource:ToNSString(it->second.text)
                             options:options
                               error:&error];
    K2_CHECK(library != nil) << "Metal cannot compile " << source << ".metal:\n"
                             << TextOf(error).c_str();
    return library;
  }

  // Returns the library of a file that was compiled at build time.  Returns nil
  // if there is no such library, or if this system does not load it.
  static id<MTLLibrary> Precompiled(id<MTLDevice> device,
                                    const std::string &name,
                                    const Source &source) {
    if (source.size == 0) return nil;
    dispatch_data_t data =
        dispatch_data_create(source.metallib, source.size, nullptr,
                             DISPATCH_DATA_DESTRUCTOR_DEFAULT);
    NSError *error = nil;
    id<MTLLibrary> library = [device newLibraryWithData:data error:&error];
    dispatch_release(data);
    if (library == nil)
      K2_LOG(WARNING) << "Metal cannot load the compiled " << name
                      << ".metal and compiles its text: "
                      << TextOf(error).c_str();
    return library;
  }

  id<MTLComputePipelineState> Compile(id<MTLDevice> device,
                                      const std::string &source,
                                      const std::string &kernel) {
    id<MTLLibrary> library = Library(device, source);
    id<MTLFunction> function =
        [[library newFunctionWithName:ToNSString(kernel)] autorelease];
    K2_CHECK(function != nil)
        << "There is no kernel " << kernel << " in " << source << ".metal";

    MTLComputePipelineDescriptor *descriptor =
        [[MTLComputePipelineDescriptor new] autorelease];
    descriptor.label = ToNSString(LabelOf(kernel));
    descriptor.computeFunction = function;
    NSError *error = nil;
    id<MTLComputePipelineState> pipeline =
        [device newComputePipelineStateWithDescriptor:descriptor
                                              options:MTLPipelineOptionNone
                                           reflection:nil
                                                error:&error];
    K2_CHECK(pipeline != nil)
        << "Metal cannot make a pipeline of the kernel " << kernel << " of "
        << source << ".metal: " << TextOf(error).c_str();
    return pipeline;
  }

  std::mutex mutex_;
  std::map<std::string, id<MTLLibrary>> libraries_;
  std::map<std::pair<std::string, std::string>, Kernel> kernels_;
};

// One compute encoder on torch's open command buffer, for use inside of torch's
// dispatch queue.  The destructor ends the encoding, also after an exception.
class Encoder {
 public:
  explicit Encoder(const std::string &label) {
    id<MTLCommandBuffer> commands = torch::mps::get_command_buffer();
    encoder_ = [commands computeCommandEncoder];
    K2_CHECK(encoder_ != nil) << "Metal gives no encoder for " << label;
    encoder_.label = ToNSString(label);
    NoteKernel(commands, label);
  }

  ~Encoder() { [encoder_ endEncoding]; }

  Encoder(const Encoder &) = delete;
  Encoder &operator=(const Encoder &) = delete;

  void Bind(const Argument &argument) {
    if (argument.bytes.empty()) {
      const BufferAt data = BufferOf(argument.tensor);
      [encoder_ setBuffer:data.buffer
                   offset:data.offset
                  atIndex:argument.number];
    } else {
      [encoder_ setBytes:argument.bytes.data()
                  length:argument.bytes.size()
                 atIndex:argument.number];
    }
  }

  void Dispatch(id<MTLComputePipelineState> pipeline, Grid grid) {
    [encoder_ setComputePipelineState:pipeline];
    [encoder_
         dispatchThreadgroups:MTLSizeMake(grid.threadgroups, 1, 1)
        threadsPerThreadgroup:MTLSizeMake(grid.threads_per_threadgroup, 1, 1)];
  }

 private:
  // NOT owned here: the autorelease pool owns the encoder.
  id<MTLComputeCommandEncoder> encoder_;
};

id<MTLDevice> DeviceOf(const torch::Tensor &tensor) {
  return [BufferOf(tensor).buffer device];
}

}  // namespace

KernelSource::KernelSource(const char *name, const char *text,
                           const unsigned char *metallib, size_t size) {
  Sources()[name] = {text, metallib, size};
}

void Launch(const std::string &source, const std::string &kernel, Grid grid,
            const Arguments &arguments) {
  ThrowIfFailed();
  if (grid.threadgroups == 0 || grid.threads_per_threadgroup == 0) return;

  id<MTLDevice> device = nil;
  uint32_t in = 0, out = 0;  // see PassedArguments
  for (const Argument &argument : arguments) {
    const uint32_t bit = uint32_t{1} << argument.number;
    K2_CHECK(((in | out) & bit) == 0)
        << "The kernel " << kernel << " has two arguments with the number "
        << argument.number;
    (argument.writes ? out : in) |= bit;
    if (!argument.bytes.empty()) continue;
    const torch::Tensor &tensor = argument.tensor;
    K2_CHECK(tensor.is_mps() && tensor.numel() != 0)
        << "Argument " << argument.number << " of the kernel " << kernel
        << " must be a tensor on mps with elements. Given: "
        << tensor.toString() << " of shape " << tensor.sizes();
    device = DeviceOf(tensor);
  }
  K2_CHECK(device != nil) << "No argument of the kernel " << kernel
                          << " is a tensor";

  id<MTLComputePipelineState> pipeline =
      Pipelines::Get().FindForLaunch(device, source, kernel, in, out);
  K2_CHECK_LE(grid.threads_per_threadgroup,
              [pipeline maxTotalThreadsPerThreadgroup])
      << "Too many threads in a threadgroup of the kernel " << kernel;

  RunInStream([&] {
    @autoreleasepool {
      Encoder encoder(LabelOf(kernel));
      for (const Argument &argument : arguments) encoder.Bind(argument);
      encoder.Dispatch(pipeline, grid);
    }
  });
}

std::vector<PassedArguments> GetPassedArguments() {
  return Pipelines::Get().Passed();
}

void Commit() {
  RunInStream([] {
    @autoreleasepool {
      torch::mps::commit();
    }
  });
}

uint32_t MaxThreadsPerThreadgroup(const std::string &source,
                                  const std::string &kernel,
                                  const torch::Tensor &device_of) {
  return [Pipelines::Get().Find(DeviceOf(device_of), source, kernel)
      maxTotalThreadsPerThreadgroup];
}

uint32_t ThreadgroupMemory(const std::string &source, const std::string &kernel,
                           const torch::Tensor &device_of) {
  return [Pipelines::Get().Find(DeviceOf(device_of), source, kernel)
      staticThreadgroupMemoryLength];
}

uint32_t NumCores() {
  constexpr uint32_t kCoresOfM1 = 8;
  // getCoreCount() asks the system on each call.  The function throws or
  // returns 0 if the system does not know the number.
  static const uint32_t count = [] {
    try {
      const uint32_t found = at::mps::MPSDevice::getInstance()->getCoreCount();
      return found != 0 ? found : kCoresOfM1;
    } catch (const std::exception &) {
      return kCoresOfM1;
    }
  }();
  return count;
}

}  // namespace mps
}  // namespace k2
