"""`k2mps mac-report`: one text file about k2 on the mps device of this machine.

Each step is a command that a person can run too, and the report is what the commands print.  A
failed step is a result like others, and does not end the report.
"""

import getpass
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from k2mps.build.environment import Environment
from k2mps.core import process, replacement

# Metal's own checks of a host's calls, and of a kernel's reads and writes.
VALIDATION = {"MTL_DEBUG_LAYER": "1", "MTL_SHADER_VALIDATION": "1"}

# Tests in which threads, processes and the GPU work on the same memory.
_RACES = "test_threads or test_processes or test_copies"

# The tool's lines of progress, whose number depends on the machine's speed.
_PROGRESS = re.compile(r": \d+/\d+ ")

_TITLE = """\
k2-mps on this machine.  Please attach this file to an issue of k2-mps.
It has no name of a user, a host or a directory.  diff compares it with another one.
"""


class Step(NamedTuple):
    name: str
    command: Sequence[str | Path]
    variables: Mapping[str, str] = {}  # of the environment


def steps(environment: Environment, quick: bool, options: Sequence[str] = ()) -> Iterator[Step]:
    """The steps of a report, in their order.

    Args:
      quick: whether to do a little of each.
      options: of `k2mps build`, which all steps that build k2 take.
    """
    tool, python = (sys.executable, "-m", "k2mps"), (environment.python, "-m")
    yield Step("doctor", (*tool, "doctor"))
    yield Step("build", (*tool, "build", "--no-demo", *options))
    yield Step("machine", (*python, "k2_mps_tests.machine"))
    kernels = environment.project.patches / "files/k2/csrc/mps/kernels"
    for path in sorted(kernels.glob("dense_*.metal" if quick else "*.metal")):
        measure = (*python, "k2_mps_tests.kernels.measure", path.stem)
        yield Step(f"kernels, {path.stem}", measure)
        yield Step(f"kernels, {path.stem}, validated", measure, VALIDATION)
    size = ("--size", "small", "--seconds", "0") if quick else ()
    yield Step("check", (*python, "k2.mps.check", *size))
    test = (*tool, "test", *options)
    part = ("parity", "--", "-k", "test_interop or test_losses") if quick else ()
    yield Step("suites", (*test, *part))
    rounds = "20" if quick else "5000"
    for number in range(1, 2 if quick else 6):
        races = (*test, "parity", "--", "--rounds", rounds, "-k", _RACES)
        yield Step(f"races, run {number}", races)
    short = ("--quick",) if quick else ()
    folder = environment.project.build_root / "mac-report-bench"
    yield Step("bench", (*tool, "bench", "--output", folder, *options, *short))
    # Not with what an earlier calibration found.
    calibrate = (*python, "k2.mps.calibrate", "--dry-run")
    yield Step("calibration", calibrate, {"K2_MPS_COSTS": ""})


def make(environment: Environment, steps: Iterable[Step], target: Path) -> list[str]:
    """Runs the steps; returns the names of those that fail.

    Each step adds to the file at `target`, which a crash of the machine leaves whole.
    """
    project, reporter = environment.project, environment.reporter
    names = _names(project.root)
    log = project.build_root / "mac-report.log"
    for folder in (log.parent, target.parent):
        folder.mkdir(parents=True, exist_ok=True)
    verdicts, times, parts, wrong = [], [], [], []
    for step in steps:
        reporter.info(f"{step.name} ...")
        began = time.monotonic()
        outcome = process.run(
            step.command,
            reporter=reporter,
            cwd=project.root,
            environment={
                "PYTHONPATH": os.pathsep.join([str(project.root), str(project.root / "tools")]),
                **step.variables,
            },
            log=log,
        )
        times.append(f"{time.monotonic() - began:7.1f}  {step.name}")
        verdicts.append(f"{'WRONG' if outcome.status else 'ok':7}{step.name}")
        if outcome.status:
            wrong.append(step.name)
        lines = log.read_text(encoding="utf-8").splitlines()
        words = [*(f"{name}={value}" for name, value in step.variables.items()), *step.command]
        parts += [
            f"\n== {step.name}",
            f"$ {shlex.join(map(str, words))}",
            *(line for line in lines if not _PROGRESS.search(line)),
            f"exit status: {outcome.status}",
        ]
        text = "\n".join([_TITLE, *verdicts, *parts, "\n== seconds", *times, ""])
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, names[name])
        replacement.rewrite(target, text)
    return wrong


def _names(root: Path) -> dict[str, str]:
    """Texts that a report must not contain, with their replacements."""
    found = {str(root): "<project>", str(Path.home()): "<home>"}
    for name, instead in ((getpass.getuser(), "<user>"), (platform.node(), "<host>")):
        # "root" and "runner" name nobody, and are words of other texts.
        if len(name) > 3 and name not in ("root", "runner"):
            found[name] = instead
    return found
