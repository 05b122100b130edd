// The emulator's additions to GCC's Objective-C runtime.
#pragma once

#include <objc/runtime.h>

namespace mps_emulator {

// The method for a message to an MTLBuffer handle (buffer.mm).  Ends the
// program if `receiver` is no live buffer or has no such method.
IMP LookUpBufferMethod(id receiver, SEL selector);

}  // namespace mps_emulator
