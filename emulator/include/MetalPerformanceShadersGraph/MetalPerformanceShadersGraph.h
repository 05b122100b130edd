// The names in torch's <ATen/mps/MPSStream.h>.  The emulator has no graphs.
#pragma once

#include <MetalPerformanceShaders/MetalPerformanceShaders.h>

@class MPSGraph;
@class MPSGraphCompilationDescriptor;
@class MPSGraphExecutionDescriptor;
