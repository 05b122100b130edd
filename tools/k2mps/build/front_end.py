"""The emulator's front end for Metal, which this tool runs as a program.

The front end refuses what Metal's compiler would refuse, as far as it knows that.
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from k2mps.build import doctor
from k2mps.build.environment import Environment
from k2mps.core import process

_PROGRAM = "emulator/mps_emulator/msl"


def refusals(environment: Environment, kernels: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Has this clone's front end read kernels, by .venv's Python.

    Args:
      kernels: the text of each source by its name, e.g. "add.metal".
    Returns:
      Its messages about the sources that it refuses, by name; and why it cannot run, or "".
    """
    program = environment.project.root / _PROGRAM
    clang = f"clang++-{doctor.CLANG}"
    for what, there in (
        (f"{_PROGRAM} is", program.is_dir()),
        ("the Python package clang is", environment.version_of("clang") is not None),
        (f"{clang} is", shutil.which(clang) is not None),
        (f"libclang-{doctor.CLANG}-dev is", doctor.libclang().ok),
    ):
        if not there:
            return {}, f"{what} not there"
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in kernels.items():
            path = Path(folder, name)
            path.write_text(text, encoding="utf-8")
            # As k2 has them compiled.
            check = [environment.python, program, "check", "--no-fast-math", path]
            outcome = process.run(check)
            if outcome.status != 0:
                lines = [line.replace(f"{folder}/", "") for line in outcome.lines]
                found[name] = "\n".join(lines[-8:])
    return found, ""
