// What happens when the CPU dereferences a buffer handle.
#pragma once

namespace mps_emulator {

// Installs the SIGSEGV handler that says which buffer a faulting address
// belongs to.  It then lets the fault take its former course, so the process
// dies of SIGSEGV and Python's faulthandler still prints its traceback.
void InstallHostFaultHandler();

}  // namespace mps_emulator
