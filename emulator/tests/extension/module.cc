#include <torch/csrc/utils/pybind.h>

#include "extension.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using NoGil = py::call_guard<py::gil_scoped_release>;
  m.def("host_address", &HostAddress);
  m.def("host_address_by_torch", &HostAddressByTorch);
  m.def("read_contents", &ReadContents);
  m.def("write_contents", &WriteContents);
  m.def("dereference_handle", &DereferenceHandle);
  m.def("host_alias", &HostAlias);

  m.def("synchronize_outside_queue", &SynchronizeOutsideQueue, NoGil());
  m.def("synchronize_in_queue", &SynchronizeInQueue, NoGil());
  m.def("synchronize", &Synchronize, NoGil());
  m.def("commit_in_queue", &CommitInQueue, NoGil());
  m.def("commit_outside_queue", &CommitOutsideQueue, NoGil());
  m.def("take_encoder", &TakeEncoder, NoGil());
  m.def("nanoseconds_of_idle_wait", &NanosecondsOfIdleWait);
  m.def("status_after_dispatch", &StatusAfterDispatch);
  m.def("hold_queue", &HoldQueue, NoGil());
  m.def("throw_through_rethrow", &ThrowThroughRethrow);

  m.def("signposts_enabled", &SignpostsEnabled);
  m.def("begin_interval", &BeginInterval, NoGil());
  m.def("end_interval", &EndInterval, NoGil());
  m.def("post_messages", &PostMessages);

  m.def("metal_checks", &MetalChecks);
  m.def("run_metal_check", &RunMetalCheck);

  m.def("misuses", &Misuses);
  m.def("misuse", &Misuse, NoGil());
  m.def("between_commands", &BetweenCommands);
  m.def("make_command_buffers", &MakeCommandBuffers);
}
