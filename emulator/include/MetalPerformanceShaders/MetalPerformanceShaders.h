// The part of MetalPerformanceShaders that torch's own headers mention.
//
// Apple's kernels and graphs have only their names: a program that declares,
// stores or passes them compiles; a program that makes or uses one does not.
#pragma once

#include <Metal/Metal.h>

#define MPS_EMULATOR_HAS_NO(name)                                          \
  __attribute__((unavailable(                                              \
      "the emulator has no " name                                          \
      ": it is a part of Apple's closed frameworks. Use a Metal kernel, " \
      "or aten operators; or compile this for macOS alone")))

// A class with only its name.
#define MPS_EMULATOR_NAME_ONLY(class_name)          \
  +(instancetype)alloc MPS_EMULATOR_HAS_NO(class_name); \
  +(instancetype)new MPS_EMULATOR_HAS_NO(class_name);

// ---- MPSCoreTypes.h
// The low bits are the bits of an element, the high bits its kind.
typedef NS_ENUM(uint32_t, MPSDataType) {
  MPSDataTypeInvalid = 0,
  MPSDataTypeFloatBit = 0x10000000,
  MPSDataTypeFloat32 = MPSDataTypeFloatBit | 32,
  MPSDataTypeFloat16 = MPSDataTypeFloatBit | 16,
  MPSDataTypeComplexBit = 0x01000000,
  MPSDataTypeComplexFloat32 = MPSDataTypeFloatBit | MPSDataTypeComplexBit | 64,
  MPSDataTypeComplexFloat16 = MPSDataTypeFloatBit | MPSDataTypeComplexBit | 32,
  MPSDataTypeSignedBit = 0x20000000,
  MPSDataTypeIntBit = MPSDataTypeSignedBit,
  MPSDataTypeInt2 = MPSDataTypeSignedBit | 2,
  MPSDataTypeInt4 = MPSDataTypeSignedBit | 4,
  MPSDataTypeInt8 = MPSDataTypeSignedBit | 8,
  MPSDataTypeInt16 = MPSDataTypeSignedBit | 16,
  MPSDataTypeInt32 = MPSDataTypeSignedBit | 32,
  MPSDataTypeInt64 = MPSDataTypeSignedBit | 64,
  MPSDataTypeUInt2 = 2,
  MPSDataTypeUInt4 = 4,
  MPSDataTypeUInt8 = 8,
  MPSDataTypeUInt16 = 16,
  MPSDataTypeUInt32 = 32,
  MPSDataTypeUInt64 = 64,
  MPSDataTypeAlternateEncodingBit = 0x80000000,
  MPSDataTypeBool = MPSDataTypeAlternateEncodingBit | 8,
  MPSDataTypeBFloat16 = MPSDataTypeAlternateEncodingBit | MPSDataTypeFloat16,
  MPSDataTypeNormalizedBit = 0x40000000,
  MPSDataTypeUnorm1 = MPSDataTypeNormalizedBit | 1,
  MPSDataTypeUnorm8 = MPSDataTypeNormalizedBit | 8,
};

typedef NSArray<NSNumber *> MPSShape;

// ---- MPSKernel.h, MPSNDArray.h
MPS_EMULATOR_CLASS
@interface MPSKernel : NSObject <NSCopying>
MPS_EMULATOR_NAME_ONLY("MPSKernel")
@end

MPS_EMULATOR_CLASS
@interface MPSNDArrayUnaryKernel : MPSKernel
@end

MPS_EMULATOR_CLASS
@interface MPSNDArrayDescriptor : NSObject
MPS_EMULATOR_NAME_ONLY("MPSNDArrayDescriptor")
@end

MPS_EMULATOR_CLASS
@interface MPSNDArray : NSObject
MPS_EMULATOR_NAME_ONLY("MPSNDArray")
@end

// ---- MPSCommandBuffer.h
// A command buffer that continues after a commit: it stands for a sequence of
// MTLCommandBuffers, of which the root is the open one.
MPS_EMULATOR_CLASS
@interface MPSCommandBuffer : NSObject <MTLCommandBuffer> {
  id<MTLCommandBuffer> _rootCommandBuffer;
}
@property(readonly, nonatomic) id<MTLCommandBuffer> commandBuffer;
@property(readonly, nonatomic) id<MTLCommandBuffer> rootCommandBuffer;
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)commandQueue;
+ (instancetype)commandBufferWithCommandBuffer:
    (id<MTLCommandBuffer>)commandBuffer;
- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;
- (void)commitAndContinue;
@end
