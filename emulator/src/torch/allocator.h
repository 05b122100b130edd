// torch's MPS allocator over the emulator's buffers.
#pragma once

#include <ATen/mps/MPSAllocatorInterface.h>

#include "core/memory.h"

namespace mps_emulator {

// The only device of its type.
inline c10::Device MpsDevice() { return {c10::DeviceType::MPS, 0}; }

at::mps::IMPSAllocator &TorchAllocator();

// Whether TORCH_DEVICE_BACKEND_AUTOLOAD=0 turned the device off and
// mps_emulator.load() did not turn it on.  An extension linked to this library
// loads the library, but does not turn the device on.
bool IsLeftOut();

// A DataPtr that owns `buffer`: its address is the data pointer, its context the
// Buffer.
c10::DataPtr MakeDataPtr(Buffer *buffer);

// A DataPtr of the CPU device with `address`, memory of `buffer`; owns
// `buffer`.
c10::DataPtr MakeHostDataPtr(Buffer *buffer, void *address);

// Passes the buffer of `data`, a result of one of these two, to the caller;
// nullptr for another DataPtr.
Buffer *TakeBuffer(c10::DataPtr *data);

// The buffer behind a storage of the mps device; nullptr for an empty storage.
// Ends the program if the storage has other memory.
Buffer *BufferOf(const c10::Storage &storage);

}  // namespace mps_emulator
