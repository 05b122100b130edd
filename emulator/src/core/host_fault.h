// The message for a CPU that dereferences a buffer handle.
#pragma once

namespace mps_emulator {

// Installs the SIGSEGV handler, which names the buffer of a faulting address.
// Then the former action follows: the process dies of SIGSEGV, and Python's
// faulthandler prints its traceback.
void InstallHostFaultHandler();

}  // namespace mps_emulator
