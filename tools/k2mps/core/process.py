"""Running long commands: their output followed, their children ended."""

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from k2mps.core import errors, interrupts
from k2mps.core.progress import Reporter

_GRACE_SECONDS = 15.0
_TAIL_LINES = 400

# ninja's lines of progress: steps done, all steps, the step.  In step 0, ninja looks whether there
# is anything to do.
NINJA_PROGRESS = re.compile(r"\[([1-9]\d*)/(\d+)\] (.*)")

# The descriptors of the locks that this process holds (`project.exclusive`).
locks: set[int] = set()


class Outcome(NamedTuple):
    """How a command ended."""

    status: int  # its exit status
    lines: tuple[str, ...]  # the last lines that it wrote, standard error included

    def check(
        self, error: type[errors.K2mpsError], what: str, next_command: str, shown: int = 5
    ) -> None:
        """Raises an error that shows the last lines, unless the command succeeded."""
        if self.status != 0:
            tail = self.lines[max(0, len(self.lines) - shown) :]
            raise error(what, why="\n".join(tail), next_command=next_command)


def run(
    argv: Sequence[str],
    *,
    reporter: Reporter = Reporter(),
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    log: Path | None = None,
) -> Outcome:
    """Runs a command to its end.

    The command gets a session of its own, so that only the tool gets a Ctrl-C; the
    tool then ends the command and its children.

    Args:
      environment: variables for it, on top of this process's.
      on_line: called with each line as it comes.
    """
    argv = [str(word) for word in argv]
    reporter.command(argv)
    tail: list[str] = []
    with (
        # Line by line, so that others can read how far the command is.
        open(log or os.devnull, "w", encoding="utf-8", buffering=1) as sink,
        started(
            argv,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        ) as process,
    ):
        with process.stdout:
            for line in process.stdout:
                sink.write(line)
                line = line.rstrip("\n")
                tail.append(line)
                del tail[:-_TAIL_LINES]
                on_line(line)
        process.wait()
    return Outcome(process.returncode, tuple(tail))


def output(argv: Sequence[str], reporter: Reporter = Reporter()) -> str:
    """The output of a short command; empty if the command fails or is missing."""
    argv = [str(word) for word in argv]
    reporter.command(argv)
    try:
        result = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


@contextlib.contextmanager
def started(
    argv: Sequence[str], grace: float = _GRACE_SECONDS, **how
) -> Iterator[subprocess.Popen]:
    """A process, which ends with the context if that ends early.

    A process that is asked to end removes its locks and half-written outputs
    and ends its own children; one that does not end is killed.  Where kill -9 ends the tool, the
    process goes on, and holds the tool's locks until it ends.
    """
    # A signal must not come between the start of the process and the promise to end it.
    with contextlib.ExitStack() as stack:
        with interrupts.deferred():
            # All processes of the session have `alive`, so `all_ended` ends with the last one.
            all_ended, alive = map(stack.enter_context, map(os.fdopen, os.pipe(), "rw"))
            how["pass_fds"] = (alive.fileno(), *locks)
            process = subprocess.Popen(argv, **how)
            alive.close()
            watched = all_ended if how.get("start_new_session") else None
            stack.enter_context(_ended(process, grace, watched))
        yield process


@contextlib.contextmanager
def _ended(process: subprocess.Popen, grace: float, all_ended: IO | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        deadline = time.monotonic() + grace
        # The second exception is macOS's for a group that has only ended processes.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if all_ended:
                os.killpg(process.pid, signal.SIGTERM)
            else:
                process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
        # A child of the process may end later and hold a lock until then: a compiler, which ninja
        # does not wait for, or git, where `git` on the PATH is a script.
        if not all_ended:
            process.kill()
        elif not select.select([all_ended], [], [], max(0.0, deadline - time.monotonic()))[0]:
            for one in _session(process.pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(one, signal.SIGKILL)
            select.select([all_ended], [], [], 1.0)
        process.wait()
        raise


def _session(leader: int) -> list[int]:
    """The processes of a session.  They may have several groups: ninja makes one for each step."""
    found = []
    for one in _all_processes():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(one) == leader:
                found.append(one)
    return found


def _all_processes() -> list[int]:
    """The processes of the machine.  A small Linux has no ps; macOS has no /proc."""
    if os.path.isdir("/proc/self"):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [int(word) for word in output(["ps", "-A", "-o", "pid="]).split()]
