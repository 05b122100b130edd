"""Running Python programs in .venv, with k2_mps_tests and k2 to import."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from k2mps.build.builder import Built
from k2mps.build.environment import Environment
from k2mps.core import process
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
