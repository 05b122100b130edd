"""Progress and results: the library never prints, but tells a `Reporter`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence


class Task:
    """One long piece of work whose end is in sight; this one is not shown."""

    def update(self, done: int, total: int, detail: str = "") -> None:
        """Reports that `done` of `total` units are finished."""


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


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a longer result."""

    title: str  # its heading
    lines: tuple[str, ...] = ()  # what is said in words
    # head, rows: a table; there may be none
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    preformatted: bool = False  # whether the lines are code, not sentences

    def markdown(self) -> Iterator[str]:
        """The section as lines of Markdown."""
        yield f"## {self.title}"
        yield ""
        if self.preformatted:
            yield "```"
        for line in self.lines:
            yield line
            if not self.preformatted:
                yield ""
        if self.preformatted:
            yield "```"
            yield ""
        if self.rows:
            yield from markdown_table(self.head, self.rows)
            yield ""


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines of Markdown."""

    def line(cells: Sequence[str]) -> str:
        shown = (cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells)
        return f"| {' | '.join(shown)} |"

    return [line(head), "|" + "---|" * len(head), *map(line, rows)]
