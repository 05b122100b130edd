"""The emulator's front end for Metal, which this tool runs as a program.

The front end refuses what Metal's compiler would refuse, as far as it knows that.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from k2mps.build import doctor
from k2mps.build.environment import Environment
from k2mps.core import process

_PROGRAM = "emulator/mps_emulator/msl"


@dataclasses.dataclass(frozen=True)
class FrontEnd:
    """How to run it."""

    command: tuple[str, ...] = ()  # what `check FILE...` is appended to; empty where it cannot run
    absent: str = "the emulator was not looked for"  # why it cannot

    def refusals(self, kernels: Mapping[str, str]) -> dict[str, str]:
        """Its messages about the sources that it refuses, by name.

        Args:
          kernels: the text of each source by its name, e.g. "add.metal".
        """
        found = {}
        with tempfile.TemporaryDirectory() as folder:
            for name, text in kernels.items():
                path = Path(folder, name)
                path.write_text(text, encoding="utf-8")
                # As k2 has them compiled.
                outcome = process.run([*self.command, "check", "--no-fast-math", str(path)])
                if outcome.status != 0:
                    lines = [line.replace(f"{folder}/", "") for line in outcome.lines]
                    found[name] = "\n".join(lines[-8:])
        return found


def find(environment: Environment) -> FrontEnd:
    """The front end of this clone, run by .venv's Python."""
    program = environment.project.root / _PROGRAM
    clang = f"clang++-{doctor.CLANG}"
    for what, there in (
        (f"{_PROGRAM} is", program.is_dir()),
        ("the Python package clang is", environment.version_of("clang") is not None),
        (f"{clang} is", shutil.which(clang) is not None),
        (f"libclang-{doctor.CLANG}-dev is", doctor.libclang().ok),
    ):
        if not there:
            return FrontEnd(absent=f"{what} not there")
    return FrontEnd((str(environment.python), str(program)), "")
