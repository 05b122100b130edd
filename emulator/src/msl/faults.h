// The message for a fault in a kernel's code: an access outside of its memory,
// or a division by zero.
#pragma once

namespace mps_emulator::msl {

// Describes faults of the calling thread while it runs a dispatch; then the
// process ends by the fault.  The first call installs the process's handlers.
void InstallFaultHandler();

}  // namespace mps_emulator::msl
