// The message for a fault in a kernel's code: an access outside of the kernel's
// memory, or a division by zero.
#pragma once

namespace mps_emulator::msl {

// From now on a fault of the calling thread in a dispatch prints a message and
// ends the process.  The first call installs the process's handlers.
void InstallFaultHandler();

}  // namespace mps_emulator::msl
