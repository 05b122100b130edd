"""Runs the command line, prints its error if there is one, and exits with its status."""

import errno
import os
import shutil
import sys

import click

from k2mps.cli import command_line
from k2mps.cli.session import Session
from k2mps.core import errors, git, interrupts


def run() -> None:
    """Runs the command line, and ends the process."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # The shell has closed the stream, as by `>&-`.
            setattr(sys, name, open(os.devnull, "w"))
        getattr(sys, name).reconfigure(errors="backslashreplace")
    session = Session()
    try:
        status = _status(session)
    except errors.InterruptedRunError as error:  # perhaps while _status() prints an error
        text = f"error: {error}"
        if error.next_command:
            text += f"\n  next: {session.with_options(error.next_command)}"
        _last_words(text)
        status = error.exit_code
    sys.exit(status)


def _status(session: Session) -> int:
    """Runs the command line, prints its error, and returns the exit status."""
    interrupts.install()
    git.scrub_environment()
    try:
        status = command_line.main(prog_name="k2mps", standalone_mode=False, obj=session) or 0
        sys.stdout.flush()
        return status
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except errors.K2mpsError as error:
        failure = error
    except Exception as error:
        failure = _as_error(error)
    first, *rest = errors.visible(str(failure)).split("\n")
    # The first line says what failed; the other lines may name the next command.
    rest = [f"  {session.with_options(line)}" for line in rest]
    _last_words("\n".join([f"error: {first}", *rest]))
    return failure.exit_code


def _last_words(text: str) -> None:
    """Prints an error.

    If writing to a standard stream fails, the stream is redirected to /dev/null.  Otherwise Python
    would flush the stream again when Python shuts down, and print a traceback.
    """
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _as_error(error: Exception) -> errors.K2mpsError:
    """Returns an error of the tool for an exception that the tool did not expect."""
    if shutil.which("git") is None:
        return errors.RequirementMissingError(
            "there is no git on the PATH",
            why="k2mps uses git for all that it does with k2",
            next_command="install git, by apt install git, dnf install git or"
            " xcode-select --install; then run the same command again",
        )
    if isinstance(error, OSError):
        return _from_os_error(error)
    if sys.argv[1:2] in (["-v"], ["--verbose"]):
        import traceback  # The import takes time, and errors like this one are rare.

        traceback.print_exception(error)
    kind = type(error).__name__
    first_line, _, _ = str(error).partition("\n")
    return errors.K2mpsError(
        f"{kind}: {first_line}" if first_line else kind,
        why="k2mps did not expect this: a fault of k2mps, or of a file that it has read",
        next_command="k2mps --verbose, with the same command, shows where",
    )


def _from_os_error(error: OSError) -> errors.K2mpsError:
    """Returns the tool's error for an error of the operating system."""
    message = error.strerror or str(error)
    if error.filename:
        message += f": {error.filename}"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "temporary directory" in message
    remedy = "free some space" if full else "correct that"
    return errors.K2mpsError(message, next_command=f"{remedy}, then run the same command again")
