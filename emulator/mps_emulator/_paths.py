"""Where the parts of the installed package lie."""

import functools
import importlib.metadata
import os

_LIBRARY = "libmps_emulator.so"


@functools.cache
def _root() -> str:
    """The directory of the installed package.

    This file may lie elsewhere: in a Python started in the emulator's source
    tree, the mps_emulator folder there hides the installed package, and has
    neither library nor headers.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    if os.path.exists(os.path.join(here, _LIBRARY)):
        return here
    installed = str(importlib.metadata.distribution("mps-emulator").locate_file("mps_emulator"))
    if os.path.exists(os.path.join(installed, _LIBRARY)):
        return installed
    raise RuntimeError(
        f"mps-emulator is not installed completely: {_LIBRARY} is missing in "
        f"{installed}. Install it again: pip install --no-build-isolation "
        "--force-reinstall <directory of the emulator>"
    )


def include_dir() -> str:
    """The directory of <Metal/Metal.h> and the other Apple-named headers."""
    return os.path.join(_root(), "include")


def torch_include_dir() -> str:
    """The directory of the headers that stand for torch's own, which must come before them."""
    return os.path.join(_root(), "torch_include")


def cmake_dir() -> str:
    """The directory of mps_emulatorConfig.cmake, for mps_emulator_DIR."""
    return os.path.join(_root(), "cmake")


def library_path() -> str:
    """libmps_emulator.so."""
    return os.path.join(_root(), _LIBRARY)
