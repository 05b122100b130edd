// torch's allocator for mps, which allocates the emulator's buffers.
#pragma once

#include <ATen/mps/MPSAllocatorInterface.h>

#include "core/memory.h"

namespace mps_emulator {

// The only mps device.
inline c10::Device MpsDevice() { return {c10::DeviceType::MPS, 0}; }

at::mps::IMPSAllocator &TorchAllocator();

// Returns whether the device is turned off: TORCH_DEVICE_BACKEND_AUTOLOAD is 0,
// and mps_emulator.load() has not been called.  An extension that is linked to
// this library loads the library, but does not turn the device on.
bool IsLeftOut();

// Returns a DataPtr with device mps.  The DataPtr owns a reference to `buffer`.
// The DataPtr's address is DataPointer(buffer), and its context is the Buffer.
c10::DataPtr MakeDataPtr(Buffer *buffer);

// Returns a DataPtr with device CPU.  The DataPtr owns a reference to `buffer`.
// `address` is in the memory of `buffer`.
c10::DataPtr MakeHostDataPtr(Buffer *buffer, void *address);

// Takes from `data` the reference to a buffer, which the caller then owns, and
// returns the buffer.  Returns nullptr if neither MakeDataPtr() nor
// MakeHostDataPtr() made `data`.
Buffer *TakeBuffer(c10::DataPtr *data);

// Returns the buffer of a storage on mps; nullptr for an empty storage.  Ends
// the program if the storage's memory is not a live buffer.
Buffer *BufferOf(const c10::Storage &storage);

}  // namespace mps_emulator
