"""What the library tells about its progress, and the silent default.

The library never prints.  Functions that have something to say take a
`Reporter`; the command line passes one that writes to the terminal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol


class Task(Protocol):
    """One long piece of work whose end is in sight."""

    def update(self, done: int, total: int, detail: str = "") -> None:
        """Reports that `done` of `total` units are finished."""


class _SilentTask:
    def update(self, done: int, total: int, detail: str = "") -> None:
        pass


class Reporter:
    """Receives what happens; this one discards it."""

    def info(self, text: str) -> None:
        """A result or a step the user should see."""

    def warn(self, text: str) -> None:
        """Something that is not an error but should be looked at."""

    def command(self, argv: Sequence[str]) -> None:
        """A command that is about to run."""

    @contextlib.contextmanager
    def task(self, title: str) -> Iterator[Task]:
        """A long piece of work, shown for as long as the context lasts."""
        yield _SilentTask()
