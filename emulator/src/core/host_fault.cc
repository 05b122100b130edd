#include "core/host_fault.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "core/copy_memory.h"
#include "core/fatal.h"
#include "core/memory.h"

namespace mps_emulator {

namespace {

struct sigaction former_action;

void OnSegmentationFault(int, siginfo_t *info, void *) {
  const void *address = info->si_addr;
  if (!fault_is_described && IsHandleAddress(address)) {
    char message[320];
    int length;
    if (const Buffer *buffer = FindBuffer(address)) {
      bool freed = buffer->references.load() <= 0;
      length = snprintf(
          message, sizeof(message),
          "mps emulator: fatal: the CPU dereferenced the handle of %sMTLBuffer "
          "#%lu (%zu bytes) at byte +%td: an MPS tensor's data pointer is not "
          "host memory; its host address is [buffer contents]\n",
          freed ? "the freed " : "", buffer->id, buffer->size,
          static_cast<const char *>(address) - buffer->handle);
    } else {
      length = snprintf(message, sizeof(message),
                        "mps emulator: fatal: the CPU dereferenced %p, which "
                        "was never the handle of an MTLBuffer\n",
                        address);
    }
    ssize_t written = write(STDERR_FILENO, message, length);
    static_cast<void>(written);
  } else if (!fault_is_described) {
    char message[512];
    int length = CopyMemory::DescribeFault(address, message, sizeof(message));
    ssize_t written = length ? write(STDERR_FILENO, message, length) : 0;
    static_cast<void>(written);
  }
  // After the return the instruction faults again, under the former action.
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
