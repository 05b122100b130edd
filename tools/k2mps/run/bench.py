"""`k2mps bench`: times of k2's operations by where they run."""

from __future__ import annotations

from pathlib import Path

from k2mps.build.builder import Built
from k2mps.build.environment import Environment
from k2mps.core import errors
from k2mps.core.progress import Reporter
from k2mps.core.project import Project
from k2mps.run import program


def run(
    project: Project,
    built: Built,
    output: Path | None,
    compare: Path | None,
    quick: bool,
    reporter: Reporter,
) -> Path:
    """Runs the benchmark and shows what it prints.

    Args:
      project: the clone of k2-mps.
      built: the build for mps to run it on.
      output: the folder for table, plot and JSON; default build/bench.
      compare: the JSON of an earlier run on the same machine.
      quick: whether small sizes are enough.
      reporter: told what the benchmark says.
    Returns:
      The folder.
    Raises:
      BenchmarkError: it could not run, or the earlier run is of another
        machine.
    """
    environment = Environment(project, reporter)
    environment.install(environment.requirements("examples"))
    folder = output or project.build_root / "bench"
    outcome = program.run(
        project,
        "k2_mps_tests.benchmarks.bench",
        [
            "--output",
            folder.absolute(),
            *(["--compare", compare.absolute()] if compare else []),
            *(["--quick"] if quick else []),
        ],
        reporter,
        built=built,
    )
    if outcome.status != 0:
        raise errors.BenchmarkError(
            "the benchmark did not come to its end",
            why="\n".join(outcome.lines[-5:]),
            next_command="k2mps test parity, if k2 itself failed",
        )
    return folder
