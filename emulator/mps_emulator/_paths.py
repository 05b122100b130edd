"""The paths of the installed package's files."""

import functools
import importlib.metadata
import os

_LIBRARY = "libmps_emulator.so"


@functools.cache
def _root() -> str:
    """Returns the directory of the installed package.

    This file can be in another directory.  A Python that is started in the emulator's source tree
    imports the folder mps_emulator of the source tree instead of the installed package.  That
    folder lacks the library and some headers.

    Raises:
      RuntimeError: the installed package is not complete.
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
    """Returns the include directory with <Metal/Metal.h> and other headers named like Apple's."""
    return os.path.join(_root(), "include")


def torch_include_dir() -> str:
    """Returns the include directory with headers that replace torch's headers of the same names.

    The compiler must search this directory before torch's include directories.
    """
    return os.path.join(_root(), "torch_include")


def cmake_dir() -> str:
    """Returns the directory of mps_emulatorConfig.cmake, the value for CMake's mps_emulator_DIR."""
    return os.path.join(_root(), "cmake")


def library_path() -> str:
    """Returns the path of libmps_emulator.so."""
    return os.path.join(_root(), _LIBRARY)
