"""Failures of the device, for tests of programs."""

import contextlib
import ctypes
from collections.abc import Iterator

from ._load import load


@contextlib.contextmanager
def failing_command_buffer(n: int = 1) -> Iterator[None]:
    """Lets a command buffer fail, as after a GPU time-out.

    The device runs none of the buffer's kernels, and the buffer's status is
    MTLCommandBufferStatusError. Before torch 2.15, torch does not look at the status.

    Args:
      n: which command buffer fails: the n-th that gets a kernel inside of the `with` block.
    """
    fail = load().mps_emulator_fail_command_buffer
    fail(ctypes.c_int64(n))
    try:
        yield
    finally:
        fail(ctypes.c_int64(0))
