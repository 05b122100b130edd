"""Paths: a clone of k2-mps and the folders that the tool makes in it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from k2mps.core import errors, pins


@dataclasses.dataclass(frozen=True)
class Project:
    """A clone of k2-mps."""

    root: Path  # its top directory, which holds upstream.toml

    @property
    def config_file(self) -> Path:
        return self.root / "upstream.toml"

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    @property
    def build_root(self) -> Path:
        """The folder of the default checkout and the build trees."""
        return self.root / "build"

    @property
    def default_checkout(self) -> Path:
        return self.build_root / "k2"

    @property
    def environment(self) -> Path:
        """The virtual environment that builds and tests run in."""
        return self.root / ".venv"

    @property
    def rebase(self) -> Path:
        """The worktree of k2 in which a rebase is in progress."""
        return self.build_root / "rebase"

    @property
    def resolutions(self) -> Path:
        """Conflicts of earlier rebases and how they were resolved."""
        return self.root / "resolutions"

    @property
    def staging(self) -> Path:
        """Where new patch files are written before they are moved to their
        place; beside them, so that moving is renaming."""
        return self.root / ".k2mps"

    def upstream(self) -> pins.Upstream:
        return pins.load(self.config_file)


def find(start: Path | None = None) -> Project:
    """The project that `start` (default: the current directory) is in, else
    the one that this very file belongs to.
    """
    here = Path(start or os.getcwd()).resolve()
    own = Path(__file__).resolve().parent
    for directory in (here, *here.parents, *own.parents):
        if (directory / "upstream.toml").is_file():
            return Project(directory)
    raise errors.K2mpsError(
        "no upstream.toml in this directory or above it",
        why="the tool works on a clone of k2-mps",
        next_command="cd into your clone of k2-mps",
    )


@contextlib.contextmanager
def exclusive(directory: Path, what: str) -> Iterator[int]:
    """Keeps other runs of the tool away from `directory` meanwhile.

    The lock goes with the process, however it ends: nothing is left behind.
    Yields the descriptor that holds it; a child process that inherits that
    holds the lock as well.

    Raises:
      BusyError: another run holds it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.BusyError(
                f"another k2mps uses {what}",
                next_command="wait until it ends, then run the same command again",
            ) from None
        yield descriptor
    finally:
        os.close(descriptor)
