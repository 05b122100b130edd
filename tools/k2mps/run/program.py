"""Runs Python programs of k2_mps_tests and k2 in .venv, for commands such as `k2mps fuzz`."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

from k2mps.build.builder import Built
from k2mps.build.environment import Environment
from k2mps.core import errors
from k2mps.core.process import Outcome

# The exit status of Python's argparse for a wrong command line.
_USAGE = 2
# The exit statuses of a program if something that the program needs is missing.
_LACKING = (3, 4)


def run(
    environment: Environment,
    module: str,
    arguments: Sequence[object],
    *,
    built: Built | None = None,
    variables: Mapping[str, str] | None = None,
    **how,
) -> Outcome:
    """Runs a module as a program, as `python -m` does.

    Args:
      built: the build whose k2 the program imports; None for the build registered in .venv.
      variables: further environment variables.
      how: further arguments of `process.run`.
    """
    root = environment.project.root
    paths = [root, root / "tools", *(built.python_path if built else ())]
    settings = {**(variables or {}), "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return environment.run(["-m", module, *arguments], environment=settings, **how)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of k2_mps_tests or k2 that a command of the tool runs."""

    module: str
    what: str  # the program's name in messages
    next_command: str  # what to do when the program fails
    extras: tuple[str, ...] = ()  # the extras of pyproject.toml that the program needs
    missing: str = ""  # what to do when the program needs something that is missing
    # If the program fails, the error shows this many of the last lines of the program's output.
    shown_lines: int = 1

    def run(
        self, environment: Environment, arguments: Sequence[object] = (), built: Built | None = None
    ) -> None:
        """Runs the program in the current directory, and shows its output.

        Raises:
          CheckFailedError: the program failed.
          RequirementMissingError: something that the program needs is missing.
          K2mpsError: the program does not accept its options.
        """
        for extra in self.extras:
            environment.install_extra(extra)
        show = environment.reporter.info
        outcome = run(environment, self.module, arguments, built=built, on_line=show)
        kind, what, step = errors.CheckFailedError, "failed", self.next_command
        if outcome.status == _USAGE:
            kind, what, step = errors.K2mpsError, "refuses these options", "see above, or --help"
        elif outcome.status in _LACKING and self.missing:
            kind, what, step = errors.RequirementMissingError, "cannot run", self.missing
        outcome.check(
            kind, f"the {self.what} {what}, status {outcome.status}", step, self.shown_lines
        )


CHECK = Program(
    "k2.mps.check", "comparison with the CPU", "k2mps test parity, to see which tests fail"
)
FUZZ = Program(
    "k2_mps_tests.parity.fuzz",
    "fuzzer",
    "run the program printed above in .venv/bin/python; after a crash, read build/tests/fuzz.log",
)
DOCS = Program(
    "k2_mps_tests.docs",
    "build of docs/",
    "correct the page that the message names, then k2mps docs",
    ("docs", "examples"),
)
TORCH = Program(
    "k2_mps_tests.macos_torch",
    "comparison of torch with the known facts",
    "check the files that rely on the facts that differ, then write these facts in"
    " k2_mps_tests/macos_torch/known.toml",
    ("wheels",),
    shown_lines=0,
    missing="read k2mps-pip.log in .venv, check pip's index; then run the same command again",
)
COMMITS = Program(
    "k2_mps_tests.commits",
    "check of the commits",
    "k2mps fold the fix into the patch, then k2mps upstream --check again: it skips commits that"
    " have passed",
)
BENCH = Program(
    "k2_mps_tests.benchmarks.bench",
    "benchmark",
    "k2mps test parity, if k2 itself failed",
    extras=("examples",),
)
KERNELS = Program(
    "k2_mps_tests.kernels",
    "check of the kernels",
    "correct the kernel, or its check in k2_mps_tests/kernels/checks; then run the same command"
    " again",
    missing="install what the message names; or k2mps kernels --device cpu; or k2mps kernels"
    " --prepare DIR, then DIR/run.py on a machine with a GPU",
)
