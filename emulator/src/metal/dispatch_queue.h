// The C++ objects to which dispatch_object_t points.
#pragma once

#include <dispatch/dispatch.h>

#include <string>

#include "core/serial_queue.h"

namespace mps_emulator {

struct DispatchObject {
  virtual ~DispatchObject() = default;
};

struct DispatchData : DispatchObject {
  std::string content;
};

struct DispatchQueue : DispatchObject, SerialQueue {
  using SerialQueue::SerialQueue;
};

// The structures of dispatch.h are empty.  A pointer to such a structure is a
// handle of a DispatchObject.
inline DispatchObject *FromHandle(dispatch_object_t handle) {
  return reinterpret_cast<DispatchObject *>(handle);
}

inline dispatch_queue_t ToHandle(DispatchQueue *queue) {
  return reinterpret_cast<dispatch_queue_t>(
      static_cast<DispatchObject *>(queue));
}

// The dispatch queue of the thread's current stream.
DispatchQueue &StreamDispatchQueueObject();

}  // namespace mps_emulator
