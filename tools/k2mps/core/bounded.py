"""Reading files of others: regular ones, of a bounded size."""

import os
import stat
from pathlib import Path


def read(path: Path, limit: int) -> bytes:
    """The bytes of a regular file, or of one that a link leads to.

    Args:
      limit: the most bytes that the file may have.
    Raises:
      ValueError: it is no regular file, or larger.
    """
    # Opening a pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(limit + 1)
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise ValueError(f"it has more than {limit >> 20} MiB")
    return content
