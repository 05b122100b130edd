"""`Reporter`, to which all packages except `cli` report progress and results.

These packages never print.  The command line's reporter is `cli.console.Console`.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

# A function that reports progress.  Its arguments are the number of finished steps, the number of
# all steps (0 if unknown), and the name of the current step.
Update = Callable[[int, int, str], object]


class Reporter:
    """Receives progress and results.  This class discards them; `Console` shows them."""

    def info(self, text: str) -> None:
        """Shows a result, or a step that the user should know about."""

    def warn(self, text: str) -> None:
        """Shows a warning."""

    def output(self, text: str) -> None:
        """Shows a text that is not the tool's own, such as a line of another program's output."""

    def command(self, argv: Sequence[str]) -> None:
        """Shows a command that is about to run."""

    @contextlib.contextmanager
    def task(self, title: str, log: Path | None = None) -> Iterator[Update]:
        """Shows the progress of a long task during the context.

        Args:
          log: the file to which the whole output of the task is written.
        """
        yield lambda done, total, detail: None
