"""torch's mps device and Metal, emulated on Linux.

`import torch` loads an installed emulator through torch's backend autoload.
Then `torch.device("mps")` works.  The CPU does all work of this device.  So the results are the
CPU's results, and the times are no estimate of a GPU's times.

    with mps_emulator.counters() as counted:
        ...
    assert counted.waits_with_work == 1
"""

from ._counters import Counters, counters
from ._failures import failing_command_buffer
from ._flags import cpp_extension_flags
from ._load import load
from ._paths import cmake_dir, library_path
from ._record import record
from ._trace import Dispatch, Interval, Signpost, Trace, trace

__version__ = "0.1.0"

__all__ = [
    "Counters",
    "Dispatch",
    "Interval",
    "Signpost",
    "Trace",
    "cmake_dir",
    "counters",
    "cpp_extension_flags",
    "failing_command_buffer",
    "library_path",
    "load",
    "record",
    "trace",
]
