"""The output of the command line.  Progress is a bar on a terminal, and lines of text elsewhere.

rich is imported only when a table or a bar is shown, because its import takes time.
"""

import contextlib
import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from k2mps.core import errors
from k2mps.core.progress import Reporter, Update

# The seconds from one line of progress to the next, if standard output is not a terminal.
SECONDS_BETWEEN_LINES = 30.0


class Console(Reporter):
    """Writes results and progress to standard output, warnings and commands to standard error.

    Args:
      complete: a function that adds this run's options to the commands in a message, see
        `Session.with_options`.
    """

    def __init__(self, complete: Callable[[str], str] = str):
        self._complete = complete
        # The caller sets True to echo every command as "+ command".
        self.verbose = False
        # The caller sets False if a program reads standard output, as with --json.
        self.shows_progress = True

    @property
    def on_terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return sys.stdout.isatty()

    def info(self, text: str) -> None:
        self._write(self._complete(text), sys.stdout)

    def warn(self, text: str) -> None:
        self._write(f"warning: {self._complete(text)}", sys.stderr)

    def output(self, text: str) -> None:
        self._write(text, sys.stdout)

    def command(self, argv: Sequence[str]) -> None:
        if self.verbose:
            words = shlex.join(str(word) for word in argv)
            self._write(f"+ {words}", sys.stderr)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Prints a table.

        On a terminal, the table has a head, and lacks the columns that are empty.  Elsewhere, each
        row is a line with tabs between the columns, without a head.
        """
        if not self.on_terminal:
            for row in rows:
                self.info("\t".join(row).rstrip())
            return
        from rich import box, console, table

        shown = table.Table(box=box.SIMPLE_HEAD)
        used = [at for at in range(len(head)) if any(row[at] for row in rows)]
        for at in used:
            shown.add_column(head[at], overflow="fold")
        for row in rows:
            shown.add_row(*(errors.visible(row[at]) for at in used))
        console.Console().print(shown, markup=False)

    def result(self, facts: object) -> None:
        """Prints facts as JSON."""
        self.output(json.dumps(facts, indent=2, default=vars))

    @contextlib.contextmanager
    def task(self, title: str, log: Path | None = None) -> Iterator[Update]:
        if not self.shows_progress:
            yield lambda done, total, detail: None
            return
        if log:
            self.info(f"{title} ... (log: {log})")
        elif not self.on_terminal:
            self.info(f"{title} ...")
        shown = self._bar(title) if self.on_terminal else self._lines(title)
        with shown as update:
            yield update

    @contextlib.contextmanager
    def _bar(self, title: str) -> Iterator[Update]:
        """Shows the progress of a task as a bar on the terminal."""
        from rich import progress

        with progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[detail]}", markup=False),
            transient=True,
        ) as live:
            bar = live.add_task(errors.visible(title), total=None, detail="")
            yield lambda done, total, detail: live.update(
                bar, completed=done, total=total or None, detail=errors.visible(detail[:60])
            )

    @contextlib.contextmanager
    def _lines(self, title: str) -> Iterator[Update]:
        """Shows the progress of a task as lines, one every SECONDS_BETWEEN_LINES.

        A line appears even if the task has sent no update since the last line.
        """
        latest = (0, 0, "")
        short = title if len(title) <= 40 else f"{title[:37]}..."
        ended = threading.Event()
        begin = time.monotonic()

        def update(*progress) -> None:
            """Keeps the progress until the next line; for the arguments see `progress.Update`."""
            nonlocal latest
            latest = progress

        def tell() -> None:
            """Prints lines until the task has ended."""
            while not ended.wait(SECONDS_BETWEEN_LINES):
                done, total, detail = latest
                far = f"{done} of {total}, " if total else ""
                self.info(f"{short}: {far}{time.monotonic() - begin:.0f} s so far  {detail}"[:120])

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        try:
            yield update
        finally:
            ended.set()
            thread.join()

    def _write(self, text: str, stream) -> None:
        """Prints a text to standard output or standard error."""
        text = errors.visible(text)
        try:
            print(text, file=stream, flush=True)
        except BrokenPipeError:
            # The program that read the output has closed it.  Python would flush the stream at the
            # end and print the error again, so the stream is redirected to /dev/null.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            sys.exit(128 + signal.SIGPIPE)
