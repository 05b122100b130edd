"""`k2mps fuzz`: mps against the CPU on random input, on a build of k2."""

from __future__ import annotations

import os
from typing import Sequence

from k2mps import errors, process
from k2mps.build import Built
from k2mps.environment import Environment
from k2mps.project import Project
from k2mps.reporter import Reporter


def run(
    project: Project,
    built: Built,
    seconds: float,
    seed: int,
    kinds: Sequence[str],
    reporter: Reporter,
) -> None:
    """Runs the fuzzer of the parity suite and shows what it prints.

    Args:
      project: the clone of k2-mps.
      built: the build for mps to run it on.
      seconds: for how long.
      seed: the same one makes the same cases.
      kinds: of cases, as the fuzzer names them; all where empty.
      reporter: told what the fuzzer says.
    Raises:
      TestsFailedError: the devices differ, or the fuzzer could not run.
    """
    paths = [project.root, *built.python_path]
    outcome = process.run(
        [
            Environment(project, reporter).python,
            "-m", "k2_mps_tests.parity.fuzz",
            "--seconds", f"{seconds:g}", "--seed", str(seed),
            *(argument for kind in kinds for argument in ("--kind", kind)),
        ],
        cwd=project.root,
        reporter=reporter,
        environment={"PYTHONPATH": os.pathsep.join(map(str, paths))},
        on_line=reporter.info,
    )
    if outcome.status != 0:
        raise errors.TestsFailedError(
            f"the fuzzer ended with status {outcome.status}",
            next_command="the program printed above, in .venv/bin/python",
        )
