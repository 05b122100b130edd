"""Counts of the emulated device's work."""

import contextlib
import ctypes
import dataclasses
from collections.abc import Iterator

from ._load import load


@dataclasses.dataclass
class Counters:
    """Counts since the process began, or between two moments."""

    dispatches: int = 0  # Metal compute dispatches that ran
    # Waits for a stream that found work in flight.  From torch 2.15 on, a call waits for each
    # stream.
    waits_with_work: int = 0
    host_to_device_bytes: int = 0  # that torch operators copied
    device_to_host_bytes: int = 0
    operators: int = 0  # aten operators that the CPU carried out
    syncs_with_gil: int = 0  # dispatch_sync by a thread that held the GIL
    # The bytes of the mps tensors that aten operators took and made, each tensor
    # once: a copy of n bytes on the device counts 2 * n, x.add_(1) the size of x.
    operator_bytes: int = 0
    # The nanoseconds in which the emulator made and compared its two copies of buffers, outside of
    # commands and operators.  A Mac has one copy.
    upkeep: int = 0
    # Objects that were autoreleased in a thread without an autorelease pool: nothing frees them
    # before the thread ends.
    autorelease_leaks: int = 0

    def __sub__(self, other: "Counters") -> "Counters":
        return Counters(
            *(a - b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other)))
        )


_FIELDS = len(dataclasses.fields(Counters))


def snapshot() -> Counters:
    """The counts since the process began."""
    values = (ctypes.c_uint64 * _FIELDS)()
    count = load().mps_emulator_counters(values, _FIELDS)
    if count != _FIELDS:
        raise RuntimeError(
            f"libmps_emulator.so has {count} counters, the Python package "
            f"{_FIELDS}: reinstall mps-emulator"
        )
    return Counters(*values)


@contextlib.contextmanager
def counters() -> Iterator[Counters]:
    """Count what the device does inside a `with` block.

    Yields a Counters object that is filled when the block ends.
    """
    counted = Counters()
    before = snapshot()
    try:
        yield counted
    finally:
        counted.__dict__.update((snapshot() - before).__dict__)
