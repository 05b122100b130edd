"""Compiles each file of kernels alone, with the compiler of Metal's driver and k2's options.

    .venv/bin/python -m k2_mps_tests.report.compiler [FILE...]

For each file, prints the compiler's errors in full, or what Metal says about the pipeline of each
kernel.  On a Mac, this program needs neither torch nor k2.  On Linux, the compiler is the
emulator's.
"""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

from k2_mps_tests import ending
from k2_mps_tests.kernels import sources
from k2_mps_tests.report import items

_SOURCE = Path(__file__).with_name("compile.mm")


def _library(folder: Path) -> ctypes.CDLL:
    """Builds and loads compile.mm.

    Raises:
      subprocess.CalledProcessError: compile.mm does not compile; the compiler has printed why.
    """
    output = folder / "compile.so"
    # Without CoreGraphics, Metal gives a program without windows no device.
    frameworks = ("Metal", "Foundation", "CoreGraphics")
    compiler, options = "clang++", [word for name in frameworks for word in ("-framework", name)]
    if sys.platform != "darwin":
        import mps_emulator
        import torch  # noqa: F401  starts the emulator

        compiler = sources.program("clang++-19", "clang++")
        flags = mps_emulator.cpp_extension_flags()
        options = [*(f"-I{folder}" for folder in flags["extra_include_paths"])]
        options += [*flags["extra_cflags"], *flags["extra_ldflags"]]
    command = [compiler, "-x", "objective-c++", "-std=c++17", "-shared", "-fPIC", str(_SOURCE)]
    subprocess.run([*command, "-o", str(output), "-x", "none", *options], check=True)
    return ctypes.CDLL(str(output))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        library = _library(Path(folder))
    library.report_device()

    def compiles(name: str) -> bool:
        kernels = [kernel.encode() for kernel in sources.writable_arguments(name)]
        array = (ctypes.c_char_p * len(kernels))(*kernels)
        return library.report_compile(sources.text(name).encode(), array, len(kernels)) == 0

    items.run((name, lambda name=name: compiles(name)) for name in sys.argv[1:] or sources.names())
    return 0


if __name__ == "__main__":
    ending.run(main)
