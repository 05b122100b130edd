// MTLCompileOptions, MTLLibrary, MTLFunction and the compute pipeline.
#include <Metal/Metal.h>

#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/fatal.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;
using LibraryPointer = std::shared_ptr<const msl::Library>;

NSErrorDomain const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

namespace {

// The most threads that a pipeline allows if the program gives no number.  On a
// Mac the limit depends on the kernel's registers, which the emulator does not
// count.  With a low MPS_EMULATOR_MAX_THREADS a program that never reads
// maxTotalThreadsPerThreadgroup fails here too.
NSUInteger MostThreadsOfAPipeline() {
  const char *given = getenv("MPS_EMULATOR_MAX_THREADS");
  NSUInteger most = given ? strtoul(given, nullptr, 10) : 0;
  // Every pipeline allows at least one simdgroup.
  return most ? std::max<NSUInteger>(most, msl::kSimdWidth) : NSUIntegerMax;
}

}  // namespace

@implementation MTLCompileOptions

@synthesize preprocessorMacros = _preprocessorMacros,
            fastMathEnabled = _fastMathEnabled, mathMode = _mathMode,
            mathFloatingPointFunctions = _mathFloatingPointFunctions,
            languageVersion = _languageVersion,
            preserveInvariance = _preserveInvariance,
            optimizationLevel = _optimizationLevel,
            maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;

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

// The older spelling of the math mode.
- (void)setFastMathEnabled:(BOOL)enabled {
  _fastMathEnabled = enabled;
  _mathMode = enabled ? MTLMathModeFast : MTLMathModeSafe;
}

- (void)setMathMode:(MTLMathMode)mode {
  _mathMode = mode;
  _fastMathEnabled = mode == MTLMathModeFast;
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

GETTER(MTLFunctionType, functionType, MTLFunctionTypeKernel)
GETTER(NSString *, name, ToNSString(_kernel->name))

@end

// ------------------------------------------------------- function constants

namespace {

using ConstantValues = std::vector<msl::FunctionConstantValue>;

// Bytes of one value.
size_t SizeOf(MTLDataType type) {
  struct Family {
    MTLDataType first;  // the scalar; vectors of 2 to 4 follow
    size_t size;
  };
  static constexpr Family kFamilies[] = {
      {MTLDataTypeFloat, 4}, {MTLDataTypeHalf, 2},  {MTLDataTypeInt, 4},
      {MTLDataTypeUInt, 4},  {MTLDataTypeShort, 2}, {MTLDataTypeUShort, 2},
      {MTLDataTypeChar, 1},  {MTLDataTypeUChar, 1}, {MTLDataTypeBool, 1},
      {MTLDataTypeLong, 8},  {MTLDataTypeULong, 8}, {MTLDataTypeBFloat, 2},
  };
  for (const Family &family : kFamilies)
    if (type >= family.first && type < family.first + 4)
      return family.size * (type - family.first + 1);
  Fatal("MTLFunctionConstantValues: MTLDataType %lu is no scalar or vector",
        static_cast<NSUInteger>(type));
}

}  // namespace

@interface MTLFunctionConstantValues (MPSEmulator)
- (ConstantValues *)values;
@end

@implementation MTLFunctionConstantValues

- (instancetype)init {
  _values = new ConstantValues;
  return self;
}

- (void)dealloc {
  delete[self values];
  [super dealloc];
}

GETTER(ConstantValues *, values, static_cast<ConstantValues *>(_values))

- (id)copyWithZone:(NSZone *)zone {
  MTLFunctionConstantValues *copy = [[MTLFunctionConstantValues alloc] init];
  *[copy values] = *[self values];
  return copy;
}

- (void)setConstantValue:(const void *)value
                    type:(MTLDataType)type
                 atIndex:(NSUInteger)index {
  std::erase_if(*[self values], [&](const msl::FunctionConstantValue &other) {
    return other.name.empty() && other.index == index;
  });
  [self values]->push_back({"",
                            static_cast<unsigned>(index),
                            {static_cast<const char *>(value), SizeOf(type)}});
}

- (void)setConstantValues:(const void *)values
                     type:(MTLDataType)type
                withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i)
    [self setConstantValue:static_cast<const char *>(values) + i * SizeOf(type)
                      type:type
                   atIndex:range.location + i];
}

- (void)setConstantValue:(const void *)value
                    type:(MTLDataType)type
                withName:(NSString *)name {
  std::string text = ToStdString(name);
  std::erase_if(*[self values], [&](const msl::FunctionConstantValue &other) {
    return other.name == text;
  });
  [self values]->push_back(
      {text, 0, {static_cast<const char *>(value), SizeOf(type)}});
}

- (void)reset {
  [self values]->clear();
}

@end

@implementation MPSEmulatorLibrary

+ (instancetype)newWithSource:(const std::string &)source
                      options:(const msl::CompileOptions &)options
                        error:(NSError **)error {
  if (error) *error = nil;
  std::string diagnostics;
  LibraryPointer compiled = msl::Compile(source, options, &diagnostics);
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

- (void)dealloc {
  delete _library;
  [super dealloc];
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)functionName {
  const msl::Kernel *kernel = (*_library)->Find(ToStdString(functionName));
  if (!kernel) return nil;
  return [[MPSEmulatorFunction alloc] initWithLibrary:*_library kernel:kernel];
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)name
                        constantValues:
                            (MTLFunctionConstantValues *)constantValues
                                 error:(NSError **)error {
  // A function with constant values is compiled again, from the source.
  const msl::Library &general = **_library;
  msl::CompileOptions options = general.options;
  options.function_constants = *[constantValues values];
  MPSEmulatorLibrary *specialised =
      [MPSEmulatorLibrary newWithSource:general.source
                                options:options
                                  error:error];
  if (!specialised) return nil;
  id<MTLFunction> function = [specialised newFunctionWithName:name];
  [specialised release];
  if (!function && error)
    *error = MakeError(MTLLibraryErrorDomain, MTLLibraryErrorFunctionNotFound,
                       "the library has no function " + ToStdString(name));
  return function;
}

- (NSArray *)functionNames {
  NSMutableArray *names = [NSMutableArray array];
  for (const msl::Kernel &kernel : (*_library)->kernels)
    [names addObject:ToNSString(kernel.name)];
  return names;
}

@end

@implementation MTLComputePipelineDescriptor

@synthesize label = _label, computeFunction = _computeFunction,
            threadGroupSizeIsMultipleOfThreadExecutionWidth =
                _threadGroupSizeIsMultipleOfThreadExecutionWidth,
            maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;

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
