// Prints a message if the host dereferences a buffer handle.
#include <signal.h>

#include "core/blocks.h"
#include "core/fatal.h"

namespace mps_emulator {

namespace {

struct sigaction former_action;

void OnSegmentationFault(int, siginfo_t *info, void *) {
  const void *address = info->si_addr;
  const Buffer *buffer = FindBuffer(address);
  if (buffer)
    PrintFatalInHandler(
        "the CPU dereferenced the handle of %sMTLBuffer #%lu (%zu bytes) at "
        "byte +%td: an MPS tensor's data pointer is not host memory; its host "
        "address is [buffer contents]",
        buffer->references.load() > 0 ? "" : "the freed ", buffer->id,
        buffer->size, static_cast<const char *>(address) - buffer->handle);
  else if (IsHandleAddress(address))
    PrintFatalInHandler(
        "the CPU dereferenced %p, which was never the handle of an MTLBuffer",
        address);
  else
    CopyMemory::PrintFault(address);
  // After the handler returns, the instruction faults again, and the former
  // action runs.
  sigaction(SIGSEGV, &former_action, nullptr);
}

}  // namespace

void InstallHostFaultHandler() {
  struct sigaction action = {};
  action.sa_sigaction = OnSegmentationFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &former_action);
}

}  // namespace mps_emulator
