"""Runs Python programs of k2_mps_tests and k2 in .venv."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

from k2mps.build.environment import Environment
from k2mps.build.request import Built
from k2mps.core import errors
from k2mps.core.process import Outcome


def run(
    environment: Environment,
    module: str,
    arguments: Sequence[object],
    *,
    built: Built | None = None,
    variables: Mapping[str, str] | None = None,
    **run_options,
) -> Outcome:
    """Runs a module as a program, as `python -m` does.

    Args:
      built: the build whose k2 the program imports; None for the build registered in .venv.
      variables: further environment variables.
      run_options: further arguments of `process.run`.
    """
    root = environment.project.root
    paths = [root, root / "tools"]
    if built:
        paths += built.python_path
    settings = {**(variables or {}), "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return environment.run(["-m", module, *arguments], environment=settings, **run_options)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of k2_mps_tests or k2 that a command of the tool runs."""

    module: str
    title: str  # the program's name in messages
    next_command: str  # what to do when the program fails

    def run(self, environment: Environment, arguments: Sequence[object] = ()) -> None:
        """Runs the program in the current directory, and shows its output.

        Raises:
          CheckFailedError: the program failed.
        """
        outcome = run(environment, self.module, arguments, on_line=environment.reporter.output)
        if outcome.status != 0:
            why, next_command = _reason(outcome.lines)
            raise errors.CheckFailedError(
                f"the {self.title} failed, status {outcome.status}",
                why=why,
                next_command=next_command or self.next_command,
            )


def _reason(lines: Sequence[str]) -> tuple[str, str]:
    """Returns why a program failed, and what to do next, from the last lines of its output.

    The programs print an error of the tool as the tool prints it: one line says what failed, and
    the indented lines below say why, and what to do next.  If the last line is not indented, the
    program has not said what to do next.
    """
    reason = next((line for line in reversed(lines) if line and not line.startswith(" ")), "")
    last = lines[-1] if lines else ""
    next_command = last.removeprefix("  next: ") if last.startswith("  next: ") else ""
    return reason.removeprefix("error: "), next_command


CHECK = Program(
    "k2_mac.check", "comparison with the CPU", "k2mps test parity, to see which tests fail"
)
COMMITS = Program(
    "k2_mps_tests.commits",
    "check of the commits",
    "k2mps fold the fix into the patch, then the same command again: it skips commits that have"
    " passed",
)
KERNELS = Program(
    "k2_mps_tests.kernels",
    "check of the kernels",
    "correct the kernel, or its check in k2_mps_tests/kernels/checks; then run the same command"
    " again",
)
