// The command encoders.
#pragma once

#include <Metal/Metal.h>

#include <memory>

#include "core/commands.h"

namespace mps_emulator {

// Autoreleased encoders that encode into `buffer`.
id<MTLComputeCommandEncoder> NewComputeEncoder(
    const std::shared_ptr<CommandBuffer> &buffer,
    MTLDispatchType dispatch_type);
id<MTLBlitCommandEncoder> NewBlitEncoder(
    const std::shared_ptr<CommandBuffer> &buffer);

}  // namespace mps_emulator
