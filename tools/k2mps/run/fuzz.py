"""`k2mps fuzz`: mps against the CPU on random input, on a build of k2."""

from __future__ import annotations

from collections.abc import Sequence

from k2mps.build.builder import Built
from k2mps.core import errors
from k2mps.core.progress import Reporter
from k2mps.core.project import Project
from k2mps.run import program


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
    outcome = program.run(
        project,
        "k2_mps_tests.parity.fuzz",
        [
            "--seconds",
            f"{seconds:g}",
            "--seed",
            seed,
            *(argument for kind in kinds for argument in ("--kind", kind)),
        ],
        reporter,
        built=built,
    )
    if outcome.status != 0:
        raise errors.TestsFailedError(
            f"the fuzzer ended with status {outcome.status}",
            next_command="the program printed above, in .venv/bin/python",
        )
