// MetalPerformanceShadersGraph: only the names that torch's headers mention.
// The emulator has no graphs.
#pragma once

#include <MetalPerformanceShaders/MetalPerformanceShaders.h>

@class MPSGraph;
@class MPSGraphExecutionDescriptor;
@class MPSGraphCompilationDescriptor;
