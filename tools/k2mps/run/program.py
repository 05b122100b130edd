"""Running Python programs in .venv, with k2_mps_tests and k2 to import.

`k2mps fuzz`, `bench` and `kernels` are such programs: what they print is
shown, and how they end is told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from k2mps.build import builder
from k2mps.build.builder import Built
from k2mps.build.environment import Environment
from k2mps.core import errors, process
from k2mps.core.pins import Upstream
from k2mps.core.process import Outcome
from k2mps.core.progress import Reporter
from k2mps.core.project import Project


def run(
    project: Project,
    module: str,
    arguments: Sequence[object],
    reporter: Reporter,
    *,
    built: Built | None = None,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    log: Path | None = None,
) -> Outcome:
    """Runs a module as a program.

    Args:
      project: the clone of k2-mps.
      module: the program, as `python -m` takes it.
      arguments: what follows on its command line.
      reporter: told about the command, and what the program says.
      built: the build whose k2 it imports; else the one that is registered
        in .venv, if any.
      cwd: where it runs; default the top of the clone.
      variables: further environment variables.
      on_line: takes each line that the program writes instead of `reporter`.
      log: a file that receives the whole output.
    """
    paths = [project.root, *(built.python_path if built else ())]
    return process.run(
        [Environment(project, reporter).python, "-m", module, *arguments],
        cwd=cwd or project.root,
        reporter=reporter,
        environment={**(variables or {}), "PYTHONPATH": os.pathsep.join(map(str, paths))},
        on_line=on_line or reporter.info,
        log=log,
    )


def fuzz(project: Project, built: Built, reporter: Reporter, **options: object) -> None:
    """Runs the fuzzer of the parity suite: mps against the CPU.

    Args:
      built: the build for mps to run it on.
      options: the fuzzer's own.
    Raises:
      TestsFailedError: the devices differ, or the fuzzer could not run.
    """
    outcome = run(project, "k2_mps_tests.parity.fuzz", _words(options), reporter, built=built)
    if outcome.status != 0:
        raise errors.TestsFailedError(
            f"the fuzzer ended with status {outcome.status}",
            next_command="the program printed above, in .venv/bin/python",
        )


def bench(
    project: Project, built: Built, reporter: Reporter, output: Path | None, **options: object
) -> Path:
    """Times k2's operations by where they run.

    Args:
      built: the build for mps to run it on.
      output: the folder for table, plot and JSON; default build/bench.
      options: the benchmark's others.
    Returns:
      The folder.
    Raises:
      BenchmarkError: it could not run, or the earlier run that it compares
        with is of another machine.
    """
    environment = Environment(project, reporter)
    environment.install(environment.requirements("examples"))
    folder = output or project.build_root / "bench"
    words = _words({"output": folder, **options})
    outcome = run(project, "k2_mps_tests.benchmarks.bench", words, reporter, built=built)
    if outcome.status != 0:
        raise errors.BenchmarkError(
            "the benchmark did not come to its end",
            why="\n".join(outcome.lines[-5:]),
            next_command="k2mps test parity, if k2 itself failed",
        )
    return folder


# Exit statuses of k2_mps_tests.kernels.
_NO_GPU = 3
_MISSING = 4


def kernels(project: Project, upstream: Upstream, reporter: Reporter, **options: object) -> None:
    """Checks each Metal kernel by itself, against a reference.

    Args:
      options: of k2_mps_tests/kernels.
    Raises:
      TestsFailedError: a kernel is wrong.
      NoGpuError: there is no NVIDIA GPU to run on.
      RequirementMissingError: a kernel has no check, or a file of CUDA's is
        missing.
    """
    builder.prepare(project, upstream, builder.Request(), reporter)
    outcome = run(
        project,
        "k2_mps_tests.kernels",
        _words(options),
        reporter,
        # The error repeats this text, so it is left out here.
        on_line=lambda line: None if line.startswith("no GPU: ") else reporter.info(line),
    )
    last = outcome.lines[-1] if outcome.lines else "it said nothing"
    if outcome.status == _NO_GPU:
        raise errors.NoGpuError(
            last,
            next_command="k2mps kernels --device cpu, or k2mps kernels"
            " --prepare DIR and DIR/run.py on a machine with a GPU",
        )
    if outcome.status == _MISSING:
        raise errors.RequirementMissingError(
            "the kernels cannot be checked",
            why=last,
            next_command="install what it names, then run the same command again",
        )
    if outcome.status != 0:
        raise errors.TestsFailedError(
            f"the checks of the kernels ended with status {outcome.status}",
            next_command="k2mps kernels --device cpu, after a change of the"
            " kernel or of its check in k2_mps_tests/kernels/checks",
        )


def _words(options: Mapping[str, object]) -> Iterator[str]:
    """Options as words of a command line; a path is the user's, wherever the
    program runs."""
    for name, value in options.items():
        for one in value if isinstance(value, tuple) else (value,):
            if one is True:
                yield f"--{name}"
            elif one is not None and one is not False:
                yield from (f"--{name}", str(one.absolute() if isinstance(one, Path) else one))
