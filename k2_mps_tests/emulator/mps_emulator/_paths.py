"""Where the parts of the installed package lie."""

import os

_ROOT = os.path.dirname(os.path.abspath(__file__))


def include_dir() -> str:
    """The directory of <Metal/Metal.h> and the other Apple-named headers."""
    return os.path.join(_ROOT, "include")


def cmake_dir() -> str:
    """The directory of mps_emulatorConfig.cmake, for mps_emulator_DIR."""
    return os.path.join(_ROOT, "cmake")


def library_path() -> str:
    """libmps_emulator.so."""
    return os.path.join(_ROOT, "libmps_emulator.so")
