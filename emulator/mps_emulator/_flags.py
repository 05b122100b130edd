"""Compiler and linker flags for builds without CMake."""

import json
import os

from ._paths import include_dir, library_path, torch_include_dir


def cpp_extension_flags() -> dict[str, list[str]]:
    """Returns keyword arguments for torch.utils.cpp_extension.load() and load_inline().

    With these arguments, Objective-C++ sources (.mm) are compiled and linked with the emulator
    instead of a Mac's frameworks.  The compiler must be clang: set CXX=clang++-19 in the
    environment.

        cpp_extension.load("name", ["source.mm"], **cpp_extension_flags())
    """
    library = library_path()
    directory = os.path.dirname(library)
    path = os.path.join(directory, "build_flags.json")
    with open(path, encoding="utf-8") as file:
        flags = json.load(file)
    return {
        "extra_include_paths": [torch_include_dir(), include_dir()],
        "extra_cflags": flags["compile"],
        # The emulator replaces a function of libobjc, so the linker must see the emulator first.
        "extra_ldflags": [
            "-Wl,--no-as-needed",
            library,
            *flags["libraries"],
            f"-Wl,-rpath,{directory}",
        ],
    }
