"""Runs a command in a process group of its own, with a time limit."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# Seconds that a process has for its end after each signal.  The tool needs 15 seconds to end its
# compilers.
_GRACE = 20.0
# Seconds in which the output of an ended command must end, too.
_REST = 2.0


def output(*command: str, seconds: float = 60.0) -> tuple[int | None, str]:
    """Runs a small program of the system, which may be missing or hang.

    Returns:
      (exit status, or None if the program did not run to its end; what it prints, or the reason)
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
        )
    except OSError as error:
        return None, f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return None, f"{command[0]}: no answer in {seconds:.0f} seconds"
    return done.returncode, done.stdout


class Outcome(NamedTuple):
    status: int  # as in subprocess: negative if a signal ended the process
    hung: bool  # whether the process was ended because the time limit was over
    seconds: float


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    variables: Mapping[str, str],
    log: Path,
    limit: Callable[[], float],
    on_line: Callable[[str], None],
    note: Path,
) -> Outcome:
    """Runs a command, and returns when it and its process group have ended.

    Args:
      variables: environment variables for the command, in addition to those of this process.
      log: a file to which all that the command prints is appended.
      limit: returns the time.monotonic() at which the command must have ended.
      on_line: called with each line that the command prints, without the line's end.
      note: a file that exists while the command runs; see end_left_over().
    """
    began = time.monotonic()
    with open(log, "ab", buffering=0) as sink:
        sink.write(("$ " + " ".join(command) + "\n").encode())
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            on_line(f"{command[0]}: {error.strerror}")
            return Outcome(127, False, 0.0)
        hung = False
        try:
            note.write_text(" ".join([str(process.pid), *command[1:]]))
            hung = not _follow(process, limit, sink.write, on_line)
            if hung:
                # At SIGABRT, Python prints the stack of each thread, and macOS writes a crash
                # report.  The tool needs SIGTERM, so that it ends its compilers.
                python = os.path.basename(command[0]).startswith("python")
                _end(process, signal.SIGABRT if python else signal.SIGTERM)
                # The driver of a GPU can keep a process from ending.
                rest = time.monotonic() + _REST
                _follow(process, lambda: rest, sink.write, on_line)
        finally:
            _end(process)
            process.stdout.close()
            note.unlink(missing_ok=True)
    return Outcome(process.returncode, hung, time.monotonic() - began)


def end_left_over(note: Path) -> None:
    """Ends the command that a killed report has left behind.  It would run beside the next one."""
    if not note.exists():
        return
    group, _, arguments = note.read_text().partition(" ")
    note.unlink()
    # Another process can have the number by now.
    status, said = output("ps", "-ww", "-o", "args=", "-p", group)
    if status != 0 or not said.rstrip().endswith(arguments):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(int(group), signal.SIGTERM)
        end = time.monotonic() + _GRACE
        while time.monotonic() < end:
            os.killpg(int(group), 0)
            time.sleep(0.1)
        os.killpg(int(group), signal.SIGKILL)


def _follow(process, limit, write, on_line) -> bool:
    """Reads the output until the process has ended; returns False if the limit came first."""
    rest = b""
    ended = None  # when the process has ended
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            if ended is None and process.poll() is not None:
                ended = now
            # A process that the command has left behind can keep the pipe open.
            if ended is not None and now > ended + _REST:
                break
            if ended is None and now > limit():
                return False
            if not selector.select(0.1):
                continue
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                break
            write(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                on_line(line.decode(errors="replace"))
    if rest:
        on_line(rest.decode(errors="replace"))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, limit() - time.monotonic()))
        return True
    return False


def _end(process, first: int = signal.SIGTERM) -> None:
    """Ends a process and its group, if they have not ended yet."""
    for number in (first, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
            break
    # The rest of the group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
