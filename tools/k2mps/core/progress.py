"""Progress and results: the library never prints, but tells a `Reporter`."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

# Takes what is done of a long piece of work, of how much, and a detail.
Update = Callable[[int, int, str], object]


class Reporter:
    """Receives what happens; this one discards it."""

    def info(self, text: str) -> None:
        """A result or a step the user should see."""

    def warn(self, text: str) -> None:
        """Something that is not an error but should be looked at."""

    def command(self, argv: Sequence[str]) -> None:
        """A command that is about to run."""

    @contextlib.contextmanager
    def task(self, title: str, log: Path | None = None) -> Iterator[Update]:
        """A long piece of work, shown for as long as the context lasts.

        Args:
          log: the file that gets the whole output of the work.
        """
        yield lambda done, total, detail: None


# A result for people: its heading, lines of text, and a table.
Section = tuple[str, Sequence[str], Sequence[str], Sequence[Sequence[str]]]
