// getMTLBufferStorage(), with which programs find the Metal buffer of a tensor.
// This header replaces torch's own header of the same name, which needs Apple's
// MPSGraph headers.
#pragma once

#include <ATen/core/TensorBase.h>
#include <Metal/Metal.h>

// Returns the MTLBuffer of the storage whose data pointer is `pointer`.  With
// MPS_EMULATOR_POINTERS=unfindable, returns `pointer` itself, like the header
// of a torch whose data pointers are MTLBuffers.
extern "C" void *mps_emulator_storage_buffer(const void *pointer);

namespace at::native::mps {

static inline id<MTLBuffer> getMTLBufferStorage(const TensorBase &tensor) {
  return __builtin_bit_cast(
      id<MTLBuffer>, mps_emulator_storage_buffer(tensor.storage().data()));
}

}  // namespace at::native::mps
