"""Failures of the device, for tests of programs."""

import contextlib
import ctypes
from collections.abc import Iterator

from ._load import load


@contextlib.contextmanager
def failing_command_buffer(n: int = 1) -> Iterator[None]:
    """Lets a command buffer fail, as after a GPU time-out.

    The device runs no command of that buffer. Its status is MTLCommandBufferStatusError. Before
    torch 2.15, torch does not look at the status.

    Args:
      n: the command buffer fails that is the n-th to be made inside of the `with` block.
    """
    fail = load().mps_emulator_fail_command_buffer
    fail(ctypes.c_int64(n))
    try:
        yield
    finally:
        fail(ctypes.c_int64(0))
