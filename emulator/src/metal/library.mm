// MTLCompileOptions, MTLLibrary, MTLFunction and the compute pipeline.
#include <Metal/Metal.h>

#include <algorithm>
#include <string>

#include "core/environment.h"
#include "core/fatal.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;
using LibraryPointer = std::shared_ptr<const msl::Library>;

NSErrorDomain const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

namespace {

// Returns how many threads a threadgroup of a pipeline can have if the program
// sets no maximum.  On a Mac the limit depends on how many registers the kernel
// uses, which the emulator does not count.  With a low
// MPS_EMULATOR_MAX_THREADS, a program that does not read
// maxTotalThreadsPerThreadgroup fails in the emulator, as it may fail on a Mac.
NSUInteger MostThreadsOfAPipeline() {
  NSUInteger most = EnvironmentNumber("MPS_EMULATOR_MAX_THREADS").value_or(0);
  // Every pipeline allows at least one simdgroup.
  return most ? std::max<NSUInteger>(most, msl::kSimdWidth) : NSUIntegerMax;
}

}  // namespace

@implementation MTLCompileOptions

@synthesize mathMode = _mathMode;
@synthesize mathFloatingPointFunctions = _mathFloatingPointFunctions;

- (instancetype)init {
  _mathMode = MTLMathModeFast;
  return self;
}

// The older property for the math mode.
GETTER(BOOL, fastMathEnabled, _mathMode == MTLMathModeFast)

- (void)setFastMathEnabled:(BOOL)enabled {
  _mathMode = enabled ? MTLMathModeFast : MTLMathModeSafe;
}

@end

@implementation MPSEmulatorFunction

- (instancetype)initWithLibrary:(const LibraryPointer &)library
                         kernel:(const msl::Kernel *)kernel {
  _library = new LibraryPointer(library);
  _kernel = kernel;
  return self;
}

- (void)dealloc {
  delete _library;
  [super dealloc];
}

GETTER(NSString *, name, ToNSString(_kernel->name))

@end

@implementation MPSEmulatorLibrary

+ (instancetype)newWithSource:(const std::string &)source
                     fastMath:(BOOL)fastMath
                        error:(NSError **)error {
  if (error) *error = nil;
  std::string diagnostics;
  LibraryPointer compiled = msl::Compile(source, fastMath, &diagnostics);
  if (!compiled) {
    if (error)
      *error = MakeError(MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure,
                         diagnostics);
    return nil;
  }
  MPSEmulatorLibrary *library = [[MPSEmulatorLibrary alloc] init];
  library->_library = new LibraryPointer(std::move(compiled));
  return library;
}

+ (instancetype)newWithMetallib:(std::string_view)content
                          error:(NSError **)error {
  if (error) *error = nil;
  std::string diagnostics;
  auto metallib = msl::LoadMetallib(content, &diagnostics);
  if (!metallib) {
    if (error)
      *error = MakeError(MTLLibraryErrorDomain, MTLLibraryErrorUnsupported,
                         diagnostics);
    return nil;
  }
  MPSEmulatorLibrary *library = [[MPSEmulatorLibrary alloc] init];
  library->_metallib =
      new std::shared_ptr<const msl::Metallib>(std::move(metallib));
  return library;
}

- (void)dealloc {
  delete _library;
  delete _metallib;
  [super dealloc];
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)functionName {
  if (_metallib) return [self newFunctionOfMetallib:ToStdString(functionName)];
  const msl::Kernel *kernel = (*_library)->Find(ToStdString(functionName));
  if (!kernel) return nil;
  return [[MPSEmulatorFunction alloc] initWithLibrary:*_library kernel:kernel];
}

- (id<MTLFunction>)newFunctionOfMetallib:(const std::string &)name {
  std::string diagnostics;
  bool missing = false;
  LibraryPointer compiled =
      msl::CompileKernels(**_metallib, {name}, &diagnostics, &missing);
  if (missing) return nil;
  if (!compiled)
    Fatal("newFunctionWithName: the emulator cannot run kernel '%s' of a "
          ".metallib: %s",
          name.c_str(), diagnostics.c_str());
  return [[MPSEmulatorFunction alloc] initWithLibrary:compiled
                                               kernel:&compiled->kernels[0]];
}

@end

@implementation MTLComputePipelineDescriptor

@synthesize label = _label, computeFunction = _computeFunction,
            maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;

- (void)dealloc {
  [_label release];
  [_computeFunction release];
  [super dealloc];
}

@end

@implementation MPSEmulatorPipeline

@synthesize maxTotalThreadsPerThreadgroup = _maxTotalThreads;

- (instancetype)initWithFunction:(MPSEmulatorFunction *)function
                 maxTotalThreads:(NSUInteger)maxTotalThreads
                           label:(NSString *)label {
  _library = new LibraryPointer(*function->_library);
  _kernel = function->_kernel;
  _maxTotalThreads = std::min<NSUInteger>(
      _kernel->max_total_threads,
      maxTotalThreads ? maxTotalThreads : MostThreadsOfAPipeline());
  _label = [label retain];
  return self;
}

- (void)dealloc {
  delete _library;
  [super dealloc];
}

GETTER(NSUInteger, threadExecutionWidth, msl::kSimdWidth)
GETTER(NSUInteger, staticThreadgroupMemoryLength,
       _kernel->static_threadgroup_bytes)

@end
