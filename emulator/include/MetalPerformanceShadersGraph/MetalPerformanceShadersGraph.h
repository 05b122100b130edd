// Declares the names that torch's <ATen/mps/MPSStream.h> uses.  The emulator
// has no graphs.
#pragma once

#include <MetalPerformanceShaders/MetalPerformanceShaders.h>

@class MPSGraph;
@class MPSGraphCompilationDescriptor;
@class MPSGraphExecutionDescriptor;
