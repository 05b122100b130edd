// Metal, the little of it that k2's backend and torch/mps.h name: enough to
// compile them for macOS where Apple's SDK is not at hand.  Selectors, types
// and values are Apple's.
#pragma once

#import <Foundation/Foundation.h>
#include <dispatch/dispatch.h>

@protocol MTLBuffer;
@protocol MTLComputeCommandEncoder;
@protocol MTLComputePipelineState;
@protocol MTLFunction;
@protocol MTLLibrary;

typedef struct {
  NSUInteger width, height, depth;
} MTLSize;

static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height,
                                  NSUInteger depth) {
  MTLSize size = {width, height, depth};
  return size;
}

@interface MTLCompileOptions : NSObject
@property(readwrite, nonatomic) BOOL fastMathEnabled;
@end

@interface MTLComputePipelineDescriptor : NSObject
@property(copy, nonatomic) NSString *label;
@property(readwrite, nonatomic, strong) id<MTLFunction> computeFunction;
@end

@class MTLComputePipelineReflection;
typedef MTLComputePipelineReflection *MTLAutoreleasedComputePipelineReflection;

typedef enum MTLPipelineOption : NSUInteger {
  MTLPipelineOptionNone = 0,
} MTLPipelineOption;

@protocol MTLDevice <NSObject>
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                               options:(MTLCompileOptions *)options
                                 error:(NSError **)error;
- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data
                               error:(NSError **)error;
- (id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:
        (MTLComputePipelineDescriptor *)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:
                                   (MTLAutoreleasedComputePipelineReflection *)
                                       reflection
                                    error:(NSError **)error;
@end

@protocol MTLLibrary <NSObject>
- (id<MTLFunction>)newFunctionWithName:(NSString *)functionName;
@end

@protocol MTLFunction <NSObject>
@end

@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@end

@protocol MTLResource <NSObject>
@property(readonly) id<MTLDevice> device;
@end

@protocol MTLBuffer <MTLResource>
- (void *)contents;
@end

@protocol MTLCommandBuffer <NSObject>
- (id<MTLComputeCommandEncoder>)computeCommandEncoder;
@end

@protocol MTLCommandEncoder <NSObject>
@property(copy, atomic) NSString *label;
- (void)endEncoding;
@end

@protocol MTLComputeCommandEncoder <MTLCommandEncoder>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBuffer:(id<MTLBuffer>)buffer
           offset:(NSUInteger)offset
          atIndex:(NSUInteger)index;
- (void)setBytes:(const void *)bytes
          length:(NSUInteger)length
         atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid
       threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup;
@end
