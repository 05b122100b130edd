// The emulator's additions to GCC's Objective-C runtime.
#pragma once

#include <objc/runtime.h>

namespace mps_emulator {

// The method for a message to an MTLBuffer handle (buffer.mm).  Ends the
// program if `receiver` is no live buffer or has no such method.
IMP LookUpBufferMethod(id receiver, SEL selector);

// True if `name` is the name of `protocol` or of a protocol that it adopts.
// Reads the compiler's data, because the runtime knows only protocols that a
// class of the same module adopts.
bool ProtocolIsNamed(const void *protocol, const char *name);

const char *NameOfProtocol(const void *protocol);

}  // namespace mps_emulator
