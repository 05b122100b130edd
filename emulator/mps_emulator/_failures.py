"""Makes the device fail, so that a test can check how a program handles the failure."""

import contextlib
import ctypes
from collections.abc import Iterator

from ._load import load


@contextlib.contextmanager
def failing_command_buffer(n: int = 1) -> Iterator[None]:
    """Inside of a `with` block, makes a command buffer fail with the error of a GPU time-out.

    The device runs none of the buffer's kernels, and the buffer's status is
    MTLCommandBufferStatusError.  Releases of torch before 2.15 do not read this status.

    Args:
      n: the number of the command buffer that fails.  The block's first command buffer with a
        kernel has number 1, and command buffers without kernels do not count.
    """
    fail = load().mps_emulator_fail_command_buffer
    fail(ctypes.c_int64(n))
    try:
        yield
    finally:
        fail(ctypes.c_int64(0))
