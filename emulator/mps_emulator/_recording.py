"""The library's functions for a recording of the device's work."""

import ctypes
import os

from ._shaders import take_text


def start(library: ctypes.CDLL, folder: str | os.PathLike) -> None:
    """Begins a recording; see mps_emulator.record()."""
    library.mps_emulator_start_record.restype = ctypes.c_void_p
    library.mps_emulator_stop_record.restype = ctypes.c_void_p
    folder = os.path.abspath(folder)
    if os.path.exists(folder) and os.listdir(folder):
        raise FileExistsError(f"{folder} is not empty: a recording needs a folder of its own")
    problem = take_text(library.mps_emulator_start_record(os.fsencode(folder)))
    if problem is not None:
        raise RuntimeError(f"cannot record to {folder}: {problem}")


def stop(library: ctypes.CDLL) -> None:
    """Ends a recording."""
    problem = take_text(library.mps_emulator_stop_record())
    if problem is not None:
        raise OSError(f"the recording is not complete: {problem}")
