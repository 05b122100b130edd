"""Recordings of a program's work on the device, for replay on another machine."""

import contextlib
import os
from collections.abc import Iterator

from . import _recording
from ._load import load


@contextlib.contextmanager
def record(folder: str | os.PathLike) -> Iterator[None]:
    """Record what the device runs inside a `with` block.

    Commands that were encoded before the block run before the recording begins.  Commands that the
    block encodes on torch's stream run before the recording ends, without a wait of the program.
    python -m mps_emulator.replay repeats the recorded work on the emulated device or on an NVIDIA
    GPU.

    Args:
      folder: the path of a new or empty folder; mps_emulator/replay/README.md
        describes the files of a recording.

    Raises:
      FileExistsError: the folder is not empty.
      RuntimeError: another recording is under way.
      OSError: the folder cannot be written.
    """
    library = load()
    _recording.start(library, folder)
    try:
        yield
    finally:
        _recording.stop(library)
