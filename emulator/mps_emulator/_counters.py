"""Counts of the emulated device's work."""

import contextlib
import ctypes
import dataclasses
from collections.abc import Iterator

from ._load import load


@dataclasses.dataclass
class Counters:
    """Counts since the process began, or between two moments."""

    # Metal compute dispatches that the device ran.
    dispatches: int = 0
    # Waits of the host for a stream whose work was not done yet.  From torch 2.15 on,
    # torch.mps.synchronize() waits for every stream, so one call can count more than once.
    waits_with_work: int = 0
    # Bytes that torch operators copied from the CPU to the device.
    host_to_device_bytes: int = 0
    # Bytes that torch operators copied from the device to the CPU.
    device_to_host_bytes: int = 0
    # aten operators on mps tensors.
    operators: int = 0
    # Calls of dispatch_sync by a thread that held Python's GIL.
    syncs_with_gil: int = 0
    # The sizes in bytes of the mps tensors that aten operators read and wrote.  For each operator,
    # each tensor is counted once: a copy of n bytes on the device counts 2 * n, and x.add_(1)
    # counts the size of x.
    operator_bytes: int = 0
    # The emulator keeps two copies of each buffer, and a Mac keeps only one.  `upkeep` is the time
    # in nanoseconds that the emulator needed to make and compare the two copies.  The time of
    # copies during a command or an operator does not count.
    upkeep: int = 0
    # Objects that were autoreleased in a thread without an autorelease pool.  Such an object stays
    # in memory until the thread ends.
    autorelease_leaks: int = 0

    def __sub__(self, other: "Counters") -> "Counters":
        return Counters(
            *(a - b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other)))
        )


_FIELDS = len(dataclasses.fields(Counters))


def snapshot() -> Counters:
    """Returns the counts since the process began.

    Raises:
      RuntimeError: the library and the Python package are of different versions.
    """
    values = (ctypes.c_uint64 * _FIELDS)()
    count = load().mps_emulator_counters(values, _FIELDS)
    if count != _FIELDS:
        raise RuntimeError(
            f"libmps_emulator.so has {count} counters, and the Python package has "
            f"{_FIELDS}: reinstall mps-emulator"
        )
    return Counters(*values)


@contextlib.contextmanager
def counters() -> Iterator[Counters]:
    """Counts what the device does inside a `with` block.

    Yields:
      The counts, which are filled in when the block ends.
    """
    counted = Counters()
    before = snapshot()
    try:
        yield counted
    finally:
        counted.__dict__.update((snapshot() - before).__dict__)
