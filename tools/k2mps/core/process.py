"""Runs long commands, reads their output line by line, and ends their child processes."""

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

from k2mps.core import interrupts
from k2mps.core.progress import Reporter

_GRACE_SECONDS = 15.0
_TAIL_LINES = 400

# A line of ninja's progress: the number of the step, the number of all steps, the step's text.  The
# pattern does not match step 0, in which ninja checks whether anything must be built.
NINJA_PROGRESS = re.compile(r"\[([1-9]\d*)/(\d+)\] (.*)")

# The file descriptors of the locks that this process holds, see `project.exclusive`.
locks: set[int] = set()


class Outcome(NamedTuple):
    """The result of a command."""

    status: int  # the command's exit status
    lines: tuple[str, ...]  # the last lines of its standard output and standard error


def run(
    argv: Sequence[str],
    *,
    reporter: Reporter = Reporter(),
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    log: Path | None = None,
) -> Outcome:
    """Runs a command and waits until it ends.

    The command gets its own session, so that the terminal sends Ctrl-C only to the tool.  The tool
    then ends the command and its child processes.

    Args:
      environment: environment variables for the command, in addition to those of this process.
      on_line: called with each line when the command writes it.
      log: the file to which the whole output is written.
    """
    argv = [str(word) for word in argv]
    reporter.command(argv)
    tail: list[str] = []
    with (
        # The log is flushed after each line, so that the user can follow it.
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


def output(argv: Sequence[str]) -> str:
    """Runs a short command; returns its output, or "" if the command fails or is missing."""
    try:
        result = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


@contextlib.contextmanager
def started(
    argv: Sequence[str], grace: float = _GRACE_SECONDS, **popen_arguments
) -> Iterator[subprocess.Popen]:
    """Starts a process, and ends it if an exception leaves the context.

    The process gets SIGTERM, so that it can remove its locks and incomplete outputs, and end its
    own child processes.  If the process does not end in time, it is killed.  If the tool itself is
    killed by `kill -9`, the process goes on, and holds the tool's locks until it ends.

    Args:
      grace: the seconds from SIGTERM to SIGKILL.
      popen_arguments: further arguments of `subprocess.Popen`.
    """
    # Signals are deferred until the context that ends the process is entered.
    with contextlib.ExitStack() as stack:
        with interrupts.deferred():
            # All processes of the session inherit `alive`, the write end of a pipe.  When the last
            # of these processes has ended, select() finds the read end, `all_ended`, readable.
            read_end, write_end = os.pipe()
            all_ended = stack.enter_context(os.fdopen(read_end, "r"))
            alive = stack.enter_context(os.fdopen(write_end, "w"))
            inherited = (alive.fileno(), *locks)
            process = subprocess.Popen(argv, pass_fds=inherited, **popen_arguments)
            alive.close()
            has_session = popen_arguments.get("start_new_session", False)
            stack.enter_context(_ended(process, grace, all_ended if has_session else None))
        yield process


@contextlib.contextmanager
def _ended(process: subprocess.Popen, grace: float, all_ended: IO | None) -> Iterator[None]:
    """Ends a process, and the other processes of its session, if an exception leaves the context.

    Args:
      grace: the seconds from SIGTERM to SIGKILL.
      all_ended: a pipe that can be read when all processes of the session have ended; None if the
        process has no session of its own.
    """
    try:
        yield
    except BaseException:
        deadline = time.monotonic() + grace
        # macOS raises PermissionError if all processes of the group have ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if all_ended:
                os.killpg(process.pid, signal.SIGTERM)
            else:
                process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
        # A child process may hold a lock, and end later than its parent.  For example, ninja does
        # not wait for compilers; and if `git` on the PATH is a script, the real git is a child of
        # this script.
        if not all_ended:
            process.kill()
        elif not _is_readable(all_ended, deadline - time.monotonic()):
            for child in _session(process.pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
            _is_readable(all_ended, 1.0)
        process.wait()
        raise


def _is_readable(pipe: IO, seconds: float) -> bool:
    """Waits until a pipe can be read, for at most `seconds`; returns whether it can be."""
    readable, _, _ = select.select([pipe], [], [], max(0.0, seconds))
    return bool(readable)


def _session(leader: int) -> list[int]:
    """Returns the processes of a session.

    A session can have several process groups, because ninja makes a group for each step.
    """
    processes = []
    for process in _all_processes():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(process) == leader:
                processes.append(process)
    return processes


def _all_processes() -> list[int]:
    """Returns all processes of the machine: from /proc, or from `ps` on macOS, which has no /proc.

    `ps` is not used on Linux, because small installations lack it.
    """
    if os.path.isdir("/proc/self"):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [int(word) for word in output(["ps", "-A", "-o", "pid="]).split()]
