// MetalPerformanceShadersGraph: only the names that torch's headers mention.
// The emulator has no graphs.
#pragma once

#include <MetalPerformanceShaders/MetalPerformanceShaders.h>

MPS_EMULATOR_CLASS
@interface MPSGraph : NSObject
MPS_EMULATOR_NAME_ONLY("MPSGraph")
@end

MPS_EMULATOR_CLASS
@interface MPSGraphTensor : NSObject <NSCopying>
MPS_EMULATOR_NAME_ONLY("MPSGraph")
@end

MPS_EMULATOR_CLASS
@interface MPSGraphTensorData : NSObject
MPS_EMULATOR_NAME_ONLY("MPSGraph")
@end

@class MPSGraphExecutionDescriptor;
@class MPSGraphCompilationDescriptor;
