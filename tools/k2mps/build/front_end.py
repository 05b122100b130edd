"""The emulator's front end for Metal, which this tool knows as a program.

It refuses what Metal's compiler would refuse, as far as it knows that.  Where
it cannot run, that is said: nothing is called checked that was not.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from k2mps.build import doctor
from k2mps.build.environment import Environment
from k2mps.core import process
from k2mps.core.project import Project

_PROGRAM = "emulator/mps_emulator/msl"


@dataclasses.dataclass(frozen=True)
class FrontEnd:
    """How to run it.

    Attributes:
      command: what `check FILE...` is appended to; empty where it cannot run.
      absent: why it cannot.
    """

    command: tuple[str, ...] = ()
    absent: str = "the emulator was not looked for"

    def refusals(self, kernels: Mapping[str, str]) -> dict[str, str]:
        """What it says against sources, by name; those that it accepts are
        left out.

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


def find(project: Project) -> FrontEnd:
    """The front end of this clone, run by .venv's Python."""
    program = project.root / _PROGRAM
    environment = Environment(project)
    clang = f"clang++-{doctor.CLANG}"
    lacking = [
        what
        for what, there in (
            (f"{_PROGRAM} is", program.is_dir()),
            ("the Python package clang is", environment.version_of("clang") is not None),
            (f"{clang} is", shutil.which(clang) is not None),
            (f"libclang-{doctor.CLANG}-dev is", doctor.libclang().ok),
        )
        if not there
    ]
    if lacking:
        return FrontEnd(absent=f"{lacking[0]} not there")
    command: Sequence[str] = (str(environment.python), str(program))
    return FrontEnd(tuple(command), "")
