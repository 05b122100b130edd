#include "core/fatal.h"
#include "msl/executor.h"

namespace mps_emulator::msl {

namespace {

// Ends the program if the dispatch has a mistake that an encoder does not
// notice, and that a GPU or Metal's validation layer would not accept.
void Check(const Dispatch &dispatch) {
  const Kernel &kernel = *dispatch.kernel;
  const char *name = kernel.name;
  for (const Parameter &parameter : ParametersOf(kernel)) {
    if (parameter.kind == kMpsEmulatorMslBuffer) {
      const Binding &binding = dispatch.buffers[parameter.index];
      // A kernel need not use a pointer parameter, so no buffer needs to be
      // bound to the parameter.  If the kernel does use the null pointer,
      // faults.cc reports the fault.
      if (binding.data == nullptr && parameter.by_reference)
        Fatal(
            "kernel '%s': no buffer is bound at index %u (parameter '%s'): "
            "call setBuffer:offset:atIndex: or setBytes:length:atIndex: before "
            "the dispatch",
            name, parameter.index, parameter.name);
      if (reinterpret_cast<uintptr_t>(binding.data) % parameter.alignment)
        Fatal(
            "kernel '%s': the offset of the buffer at index %u is not a "
            "multiple of %zu bytes, to which the type of parameter '%s' is "
            "aligned: on a Mac the kernel reads and writes other bytes.  Copy "
            "the data to an aligned place, or take a packed type",
            name, parameter.index, parameter.alignment, parameter.name);
      if (parameter.by_reference && binding.size < parameter.element_size)
        Fatal(
            "kernel '%s': the buffer at index %u holds %zu bytes, parameter "
            "'%s' needs %zu",
            name, parameter.index, binding.size, parameter.name,
            parameter.element_size);
    } else if (parameter.kind == kMpsEmulatorMslThreadgroup) {
      size_t bytes = dispatch.threadgroup_bytes[parameter.index];
      if (bytes == 0)
        Fatal(
            "kernel '%s': no threadgroup memory is set at index %u (parameter "
            "'%s'): call setThreadgroupMemoryLength:atIndex: before the "
            "dispatch",
            name, parameter.index, parameter.name);
      if (parameter.by_reference && bytes < parameter.element_size)
        Fatal(
            "kernel '%s': the threadgroup memory at index %u is %zu bytes, "
            "parameter '%s' needs %zu",
            name, parameter.index, bytes, parameter.name,
            parameter.element_size);
    }
  }
}

}  // namespace

void Run(const Dispatch &dispatch) {
  Check(dispatch);
  Executor::OfThisThread().Run(dispatch);
}

}  // namespace mps_emulator::msl
