// The message where a kernel's code faults: an access outside of its memory, or
// a division by zero.
#pragma once

namespace mps_emulator::msl {

// Has faults of the calling thread described while a dispatch runs on it; then
// the process ends as it would have.  The first call installs handlers for the
// process.
void InstallFaultHandler();

}  // namespace mps_emulator::msl
