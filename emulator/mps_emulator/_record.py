"""Records the device's work in files, from which another machine can repeat the work."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

from ._load import load
from ._text import take_text


@contextlib.contextmanager
def record(folder: str | os.PathLike) -> Iterator[None]:
    """Records the device's work inside a `with` block.

    Commands that were encoded before the block are not in the recording: the device runs them
    first.  At the end of the block, the device runs the commands that the block has encoded on
    torch's stream, and then the recording ends.  So the program does not have to wait for these
    commands.  python -m mps_emulator.replay repeats the recorded work on the emulated device or on
    an NVIDIA GPU.

    Args:
      folder: the path of a new or empty folder; mps_emulator/replay/README.md describes the files
        of a recording.
    Raises:
      FileExistsError: the folder is not empty.
      RuntimeError: another recording is under way.
      OSError: the folder cannot be written.
    """
    library = load()
    library.mps_emulator_start_record.restype = ctypes.c_void_p
    library.mps_emulator_stop_record.restype = ctypes.c_void_p
    folder = os.path.abspath(folder)
    if os.path.exists(folder) and os.listdir(folder):
        raise FileExistsError(f"{folder} is not empty: a recording needs a new or empty folder")
    problem = take_text(library.mps_emulator_start_record(os.fsencode(folder)))
    if problem is not None:
        raise RuntimeError(f"cannot record to {folder}: {problem}")
    try:
        yield
    finally:
        problem = take_text(library.mps_emulator_stop_record())
        if problem is not None:
            raise OSError(f"the recording is not complete: {problem}")
