// torch's MPS allocator over the emulator's buffers.
#pragma once

#include <ATen/mps/MPSAllocatorInterface.h>

#include "core/memory.h"

namespace mps_emulator {

at::mps::IMPSAllocator &TorchAllocator();

// Whether TORCH_DEVICE_BACKEND_AUTOLOAD=0 turned the device off, and
// mps_emulator.load() did not turn it on. An extension that is linked to this
// library brings it along and asks for nothing.
bool IsLeftOut();

// The limit that torch.mps.set_per_process_memory_fraction() sets, in bytes.
void SetMemoryFraction(double fraction);

// A DataPtr that owns `buffer`: its address is the handle, its context the
// Buffer.
c10::DataPtr MakeDataPtr(Buffer *buffer);

// A DataPtr of the CPU device with `address`, memory of `buffer`; owns
// `buffer`.
c10::DataPtr MakeHostDataPtr(Buffer *buffer, void *address);

// The buffer that `data`, made by one of the two, owns; the caller owns it from
// now on.  nullptr if `data` was made otherwise.
Buffer *TakeBuffer(c10::DataPtr *data);

// The buffer behind a storage of the mps device; nullptr for an empty one.
// Ends the program if the storage holds something else.
Buffer *BufferOf(const c10::Storage &storage);

}  // namespace mps_emulator
