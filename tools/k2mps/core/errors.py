"""The errors that the tool reports, with the exit codes for scripts.

An error names what failed, the probable cause, and the command to run next.  The command line
prints an error, and exits with its exit code.  `k2_mps_tests.docs` writes the table of the exit
codes from the docstrings of the classes.

Exit codes are part of the interface: a number never gets a second meaning.  0 is success, and 2 is
a wrong command line.  A class without its own exit code exists because a function of the tool
catches it.  Every function can raise `K2mpsError`.  So docstrings list only the subclasses that a
caller may want to catch.
"""

import signal
from collections.abc import Sequence


class K2mpsError(Exception):
    """The command failed, or refuses to lose work; the message says why.

    Args:
      message: what failed, as one line without a full stop.
      why: the probable cause, as one line or several.
      next_command: what to run or do next.
    """

    exit_code = 1

    def __init__(self, message: str, *, why: str = "", next_command: str = ""):
        super().__init__(message)
        self.message = message
        self.why = why
        self.next_command = next_command

    def __str__(self) -> str:
        lines = [self.message]
        if self.why:
            lines.append(f"why: {self.why}")
        if self.next_command:
            lines.append(f"next: {self.next_command}")
        return "\n".join(lines)


class SeriesError(K2mpsError):
    """A file of patches/ is malformed, is listed by no patch, or is listed by several patches."""


class ConflictError(K2mpsError):
    """A patch does not apply, or git has stopped a rebase."""

    exit_code = 14


class BusyError(K2mpsError):
    """Another run of the tool, or of git, holds the checkout."""

    exit_code = 17


class UnreachableError(K2mpsError):
    """Upstream, or pip's package index, cannot be reached."""

    exit_code = 20


class IndexUnreachableError(K2mpsError):
    """pip's package index cannot be reached.  k2 itself can be built without it."""

    exit_code = UnreachableError.exit_code


class RequirementMissingError(K2mpsError):
    """Something that the command needs is not installed, or is not in this machine."""

    exit_code = 30


class CheckFailedError(K2mpsError):
    """What was built or checked is wrong: a test, a lint finding, a page, a wheel."""

    exit_code = 34


class CompileError(CheckFailedError):
    """k2 cannot be configured, compiled or linked."""


class InterruptedRunError(BaseException):
    """Ctrl-C or a termination signal arrived.

    The class is not an `Exception`, so that only the command line catches it.

    Attributes:
      next_command: what to run or do next; empty if nothing is to be done.
    """

    next_command = ""

    def __init__(self, signal_number: int):
        super().__init__("interrupted")
        # By the shell's convention, the caller can compute the signal from the exit code.
        self.exit_code = 128 + signal_number


def ended_by_signal(program: str, status: int, next_command: str = "") -> K2mpsError:
    """Returns the error for a child process that a signal has ended.

    Args:
      program: the program.
      status: its exit status as Python gives it: minus the number of the signal.
      next_command: what to do next; empty for the same command again.
    """
    return K2mpsError(
        f"{program} was ended by signal {-status}, {signal.strsignal(-status) or 'unknown'}",
        why="another program or the system ended it; perhaps memory ran out, or a limit is too low",
        next_command=next_command or "run the same command again",
    )


def visible(text: str) -> str:
    """Returns a text that is safe to print.

    Characters that are not printable become escapes.  Examples are control characters, and
    characters that change the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in "\n\t"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def some(names: Sequence[str], count: int = 3) -> str:
    """Returns the first `count` names as text, and how many more there are."""
    more = f" and {len(names) - count} more" if names[count:] else ""
    return ", ".join(names[:count]).replace("\n", r"\n") + more
