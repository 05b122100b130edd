"""Reads files that the tool did not make.  They must be regular files, and not too large."""

import os
import stat
from pathlib import Path


def read(path: Path, limit: int) -> bytes:
    """Returns the bytes of a regular file; follows symbolic links.

    Args:
      limit: the largest size of the file, in bytes.
    Raises:
      ValueError: the file is not regular, or is larger than `limit`.
    """
    # Without O_NONBLOCK, opening a named pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(limit + 1)
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise ValueError(f"it has more than {limit >> 20} MiB")
    return content
