"""Compiles each file of kernels alone with Xcode's compiler of Metal, if there is one.

    python -m k2_mps_tests.report.xcrun

This program needs neither torch nor k2.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from k2_mps_tests.report import items

_ROOT = Path(__file__).resolve().parents[2] / "patches/files"
# The options are those of cmake/mps.cmake.
_OPTIONS = ("-fno-fast-math", "-mmacosx-version-min=14.0", f"-I{_ROOT}")


def _compiles(source: Path, folder: Path) -> bool:
    """Compiles a file; the compiler prints its errors."""
    metal = ("xcrun", "-sdk", "macosx", "metal")
    output = folder / f"{source.stem}.metallib"
    try:
        status = subprocess.run([*metal, *_OPTIONS, "-o", output, source]).returncode
    except FileNotFoundError as error:
        print(error)
        return False
    if status == 0:
        items.measured(metallib_bytes=output.stat().st_size)
    return status == 0


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # xcrun may find a program that only tells the user to download the compiler.
        probe = folder / "probe.metal"
        probe.write_text("kernel void probe() {}\n")
        if not _compiles(probe, folder):
            items.answer("there is no compiler of Metal; k2 works without it")
            sys.exit(items.NO_ANSWER)
        items.run(
            (source.stem, lambda source=source: _compiles(source, folder))
            for source in sorted((_ROOT / "k2/csrc/mps/kernels").glob("*.metal"))
        )


if __name__ == "__main__":
    main()
