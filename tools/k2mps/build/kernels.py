"""The whole text of a Metal kernel, as a build of k2 embeds it."""

import re
import tempfile
from pathlib import Path

from k2mps.core import errors, process

SCRIPT = "cmake/embed_metal.cmake"
FOLDER = "k2/csrc/mps/kernels"

_LITERAL = re.compile(rb'R"k2_metal\((.*?)\)k2_metal"', re.DOTALL)


def embedded(source: Path, root: Path, cmake: Path | str) -> str:
    """The text that k2's own script embeds for a kernel: with k2's headers in it.

    Args:
      source: the .metal file.
      root: a tree of k2, or the folder of the series' new files.
      cmake: the program.
    """
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch, "embedded.cc")
        settings = {"NAME": source.stem, "SOURCE": source, "ROOT": root, "OUTPUT": output}
        command = [cmake, *(f"-D{name}={value}" for name, value in settings.items())]
        process.run([*command, "-P", root / SCRIPT]).check(
            errors.CheckFailedError, f"{source.name} cannot be embedded", f"read {SCRIPT}"
        )
        # A literal may end within a character of several bytes.
        return b"".join(_LITERAL.findall(output.read_bytes())).decode()
