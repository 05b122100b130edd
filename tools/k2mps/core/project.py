"""The paths in a clone of k2-mps, and locks on directories."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from k2mps.core import errors, pins, process

# The file in .venv that makes `import k2` load a build.
REGISTER = "k2mps-build.pth"

# How long a run waits for the lock of another run.  If the other run was killed, the git command
# that it had started still holds the lock, but ends soon.
_PATIENCE_SECONDS = 1.0


class Project:
    """A clone of k2-mps, and the paths in it."""

    def __init__(self, root: Path):
        self.root = root
        self.config_file = root / "upstream.toml"
        self.patches = root / "patches"
        self.build_root = root / "build"
        self.default_checkout = self.build_root / "k2"
        # The virtual environment in which builds and tests run.
        self.environment = root / ".venv"

    @property
    def registered(self) -> Path | None:
        """The build tree from which `import k2` loads k2 in .venv; None if there is none."""
        registers = sorted(self.environment.glob(f"lib/python3.*/site-packages/{REGISTER}"))
        if not registers:
            return None
        # The last line is the path of the build tree's folder `lib`.
        lines = registers[-1].read_text(encoding="utf-8").splitlines()
        tree = Path(lines[-1]).parent
        return tree if tree.is_dir() else None

    def upstream(self) -> pins.Upstream:
        return pins.load(self.config_file)


def find() -> Project:
    """Returns the project that contains the current directory.

    If no project contains this directory, the result is the project that contains this file.
    """
    try:
        current = Path.cwd().resolve()
    except FileNotFoundError:
        raise errors.K2mpsError(
            "the current directory has been deleted", next_command="cd into your clone of k2-mps"
        ) from None
    own = Path(__file__).resolve().parent
    for directory in (current, *current.parents, *own.parents):
        if (directory / "upstream.toml").is_file():
            return Project(directory)
    raise errors.K2mpsError(
        "no upstream.toml in this directory or above it",
        why="the tool works on a clone of k2-mps",
        next_command="cd into your clone of k2-mps",
    )


@contextlib.contextmanager
def exclusive(directory: Path, shown: str, *, reading: bool = False) -> Iterator[None]:
    """Locks a directory during the context, so that no other run of the tool changes it.

    If this process is killed, the system releases the lock as soon as the child processes have
    ended, too.

    Args:
      shown: the name of the directory in messages.
      reading: whether this run only reads the directory, as a build does; several runs can read a
        directory at once.
    Raises:
      BusyError: another run changes the directory, or `reading` is False and another run reads it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    kind = fcntl.LOCK_SH if reading else fcntl.LOCK_EX
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not _locked(descriptor, kind):
            if time.monotonic() > deadline:
                raise errors.BusyError(
                    f"another k2mps {'changes' if reading else 'uses'} {shown}",
                    why="" if reading else "a build reads it, or another command changes it",
                    next_command="wait until it ends, then run the same command again",
                )
            time.sleep(0.02)
        process.locks.add(descriptor)
        yield
    finally:
        process.locks.discard(descriptor)
        os.close(descriptor)


def _locked(descriptor: int, kind: int) -> bool:
    """Locks a directory; returns False if another process holds a lock that forbids it.

    Args:
      kind: `LOCK_SH` or `LOCK_EX` of fcntl.
    """
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return True
    return False
