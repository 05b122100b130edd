// MTLCompileOptions, MTLLibrary, MTLFunction and the compute pipeline.
#include <Metal/Metal.h>

#include <string>
#include <vector>

#include "core/fatal.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;
using LibraryPointer = std::shared_ptr<const msl::Library>;

NSErrorDomain const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

@implementation MTLCompileOptions

- (instancetype)init {
  _fastMathEnabled = YES;
  _mathMode = MTLMathModeFast;
  _mathFloatingPointFunctions = MTLMathFloatingPointFunctionsFast;
  _languageVersion = MTLLanguageVersion3_2;
  return self;
}

- (void)dealloc {
  [_preprocessorMacros release];
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  MTLCompileOptions *copy = [[MTLCompileOptions alloc] init];
  copy->_preprocessorMacros = [_preprocessorMacros copy];
  copy->_fastMathEnabled = _fastMathEnabled;
  copy->_preserveInvariance = _preserveInvariance;
  copy->_mathMode = _mathMode;
  copy->_mathFloatingPointFunctions = _mathFloatingPointFunctions;
  copy->_languageVersion = _languageVersion;
  copy->_optimizationLevel = _optimizationLevel;
  copy->_maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;
  return copy;
}

- (NSDictionary *)preprocessorMacros {
  return _preprocessorMacros;
}

- (void)setPreprocessorMacros:(NSDictionary *)macros {
  NSDictionary *copy = [macros copy];
  Assign(&_preprocessorMacros, copy);
  [copy release];
}

- (BOOL)fastMathEnabled {
  return _fastMathEnabled;
}

// The older spelling of the math mode.
- (void)setFastMathEnabled:(BOOL)enabled {
  _fastMathEnabled = enabled;
  _mathMode = enabled ? MTLMathModeFast : MTLMathModeSafe;
}

- (MTLMathMode)mathMode {
  return _mathMode;
}

- (void)setMathMode:(MTLMathMode)mode {
  _mathMode = mode;
  _fastMathEnabled = mode == MTLMathModeFast;
}

- (MTLMathFloatingPointFunctions)mathFloatingPointFunctions {
  return _mathFloatingPointFunctions;
}

- (void)setMathFloatingPointFunctions:(MTLMathFloatingPointFunctions)functions {
  _mathFloatingPointFunctions = functions;
}

- (MTLLanguageVersion)languageVersion {
  return _languageVersion;
}

- (void)setLanguageVersion:(MTLLanguageVersion)version {
  _languageVersion = version;
}

- (BOOL)preserveInvariance {
  return _preserveInvariance;
}

- (void)setPreserveInvariance:(BOOL)preserve {
  _preserveInvariance = preserve;
}

- (MTLLibraryOptimizationLevel)optimizationLevel {
  return _optimizationLevel;
}

- (void)setOptimizationLevel:(MTLLibraryOptimizationLevel)level {
  _optimizationLevel = level;
}

- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return _maxTotalThreadsPerThreadgroup;
}

- (void)setMaxTotalThreadsPerThreadgroup:(NSUInteger)threads {
  _maxTotalThreadsPerThreadgroup = threads;
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
  [_label release];
  [super dealloc];
}

- (NSString *)label {
  return _label;
}

- (void)setLabel:(NSString *)label {
  Assign(&_label, label);
}

- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}

- (MTLFunctionType)functionType {
  return MTLFunctionTypeKernel;
}

- (NSString *)name {
  return ToNSString(_kernel->name);
}

@end

@implementation MPSEmulatorLibrary

- (instancetype)initWithLibrary:(LibraryPointer)library {
  _library = new LibraryPointer(std::move(library));
  return self;
}

- (void)dealloc {
  delete _library;
  [_label release];
  [super dealloc];
}

- (NSString *)label {
  return _label;
}

- (void)setLabel:(NSString *)label {
  Assign(&_label, label);
}

- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)functionName {
  const msl::Kernel *kernel = (*_library)->Find(ToStdString(functionName));
  if (!kernel) return nil;
  return [[MPSEmulatorFunction alloc] initWithLibrary:*_library kernel:kernel];
}

- (NSArray *)functionNames {
  NSMutableArray *names = [NSMutableArray array];
  for (const msl::Kernel &kernel : (*_library)->kernels())
    [names addObject:ToNSString(kernel.name)];
  return names;
}

@end

@implementation MTLComputePipelineDescriptor

- (void)dealloc {
  [_label release];
  [_computeFunction release];
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  MTLComputePipelineDescriptor *copy =
      [[MTLComputePipelineDescriptor alloc] init];
  [copy setLabel:_label];
  [copy setComputeFunction:_computeFunction];
  copy->_threadGroupSizeIsMultipleOfThreadExecutionWidth =
      _threadGroupSizeIsMultipleOfThreadExecutionWidth;
  copy->_maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;
  return copy;
}

- (void)reset {
  [self setLabel:nil];
  [self setComputeFunction:nil];
  _threadGroupSizeIsMultipleOfThreadExecutionWidth = NO;
  _maxTotalThreadsPerThreadgroup = 0;
}

- (NSString *)label {
  return _label;
}

- (void)setLabel:(NSString *)label {
  Assign(&_label, label);
}

- (id<MTLFunction>)computeFunction {
  return _computeFunction;
}

- (void)setComputeFunction:(id<MTLFunction>)function {
  Assign(&_computeFunction, function);
}

- (BOOL)threadGroupSizeIsMultipleOfThreadExecutionWidth {
  return _threadGroupSizeIsMultipleOfThreadExecutionWidth;
}

- (void)setThreadGroupSizeIsMultipleOfThreadExecutionWidth:(BOOL)multiple {
  _threadGroupSizeIsMultipleOfThreadExecutionWidth = multiple;
}

- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return _maxTotalThreadsPerThreadgroup;
}

- (void)setMaxTotalThreadsPerThreadgroup:(NSUInteger)threads {
  _maxTotalThreadsPerThreadgroup = threads;
}

@end

@implementation MPSEmulatorPipeline

- (instancetype)initWithFunction:(MPSEmulatorFunction *)function
                 maxTotalThreads:(NSUInteger)maxTotalThreads
                           label:(NSString *)label {
  _library = new LibraryPointer(*function->_library);
  _kernel = function->_kernel;
  _maxTotalThreads = _kernel->max_total_threads;
  if (maxTotalThreads && maxTotalThreads < _maxTotalThreads)
    _maxTotalThreads = maxTotalThreads;
  _label = [label retain];
  return self;
}

- (void)dealloc {
  delete _library;
  [_label release];
  [super dealloc];
}

- (NSString *)label {
  return _label;
}

- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}

- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return _maxTotalThreads;
}

- (NSUInteger)threadExecutionWidth {
  return msl::kSimdWidth;
}

- (NSUInteger)staticThreadgroupMemoryLength {
  return _kernel->static_threadgroup_bytes;
}

@end
