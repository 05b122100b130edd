"""Progress and results: the library never prints, but tells a `Reporter`."""

import contextlib
from collections.abc import Callable, Iterator, Sequence


class Task:
    """One long piece of work whose end is in sight."""

    def __init__(self, update: Callable[[int, int, str], None] = lambda *progress: None):
        self._update = update

    def update(self, done: int, total: int, detail: str = "") -> None:
        self._update(done, total, detail)


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
        yield Task()


# A result for people: its heading, lines of text, and a table.
Section = tuple[str, Sequence[str], Sequence[str], Sequence[Sequence[str]]]
