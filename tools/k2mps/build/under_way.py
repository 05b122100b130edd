"""Describes a running build, for `k2mps status`."""

import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from k2mps.core import process
from k2mps.core.project import Project
from k2mps.stack.checkout import Checkout

# The file in a build tree that has ninja's output.
LOG = "build.log"


def describe(project: Project, checkout: Checkout | None) -> str:
    """Returns the progress and log of the build that uses the checkout; empty if there is none.

    Builds are found by their locks, see `project.exclusive`.  All builds share the lock of the
    checkout's git directory.  Each build has the exclusive lock of its build tree.
    """
    if checkout is None or not _read_by_a_build(checkout.git_dir):
        return ""
    for tree in sorted(project.build_root.glob("*-torch*")):
        if not _free(tree, fcntl.LOCK_SH):
            log = tree / LOG
            return f"building {tree.name}{_progress(log)}; the log is {log}"
    return f"preparing a build; the log of pip is {project.environment / 'k2mps-pip.log'}"


def outputs(commands: Sequence[Sequence[str]]) -> list[str]:
    """Returns the names of the files that compilers and linkers are making, without ".o".

    Args:
      commands: the words of the commands that run.  A compiler is often several processes.
    """
    names = set()
    for words in commands:
        if "-o" in words[:-1]:
            path = Path(words[words.index("-o") + 1])
            if path.suffix in (".o", ".so", ".dylib"):
                names.add(path.name.removesuffix(".o"))
    return sorted(names)


def _progress(log: Path) -> str:
    """Returns ninja's progress from its log; empty if the log has no line of progress."""
    steps = []
    if log.exists():
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        steps = list(filter(None, map(process.NINJA_PROGRESS.match, lines)))
    return f", {steps[-1][1]} of {steps[-1][2]} steps done" if steps else ""


def _read_by_a_build(git_dir: Path) -> bool:
    """Whether other runs of the tool have locked a checkout to read it, not to change it."""
    return not _free(git_dir, fcntl.LOCK_EX) and _free(git_dir, fcntl.LOCK_SH)


def _free(directory: Path, kind: int) -> bool:
    """Whether the lock of a directory is free.

    If the lock is free, this function takes it, and releases it at once.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        return False
    finally:
        os.close(descriptor)
