// What the emulator adds to GCC's Objective-C runtime.
#pragma once

#include <objc/runtime.h>

namespace mps_emulator {

// The method that a message to an MTLBuffer handle runs (buffer.mm).  Ends the
// program if `receiver` is no live buffer or has no such method.
IMP LookUpBufferMethod(id receiver, SEL selector);

// True if `protocol` or one that it adopts is called `name`.  Reads the
// compiler's data: the runtime knows only protocols that a class of the same
// module adopts.
bool ProtocolIsNamed(const void *protocol, const char *name);

// The name of any protocol that the compiler made.
const char *NameOfProtocol(const void *protocol);

}  // namespace mps_emulator
