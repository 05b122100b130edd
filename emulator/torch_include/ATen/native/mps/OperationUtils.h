// The function by which programs find the Metal buffer of a tensor.  Stands for
// torch's own header of this name, which needs Apple's headers of graphs.
#pragma once

#include <ATen/core/TensorBase.h>
#include <Metal/Metal.h>

// With MPS_EMULATOR_POINTERS=unfindable the function returns the data pointer
// itself, as the header of a torch whose data pointers are buffers does.
extern "C" void *mps_emulator_storage_buffer(const void *pointer);

namespace at::native::mps {

static inline id<MTLBuffer> getMTLBufferStorage(const TensorBase &tensor) {
  return __builtin_bit_cast(
      id<MTLBuffer>, mps_emulator_storage_buffer(tensor.storage().data()));
}

}  // namespace at::native::mps
