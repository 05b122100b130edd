"""The errors that the tool reports, and the exit codes on which a script can branch.

An error names what failed, the probable cause, and the command to run next.  The library raises
errors; the command line prints them and exits with their codes.  `k2mps docs` writes the table of
the codes.

Exit codes are part of the interface: a number never gets a second meaning.  0 is success and 2 a
wrong command line.  A class without a code of its own is one that the tool itself catches.  Any
function can raise `K2mpsError`; docstrings name only the kinds that a caller may tell apart.
"""

from collections.abc import Sequence


class K2mpsError(Exception):
    """The command failed, or refuses to lose work; the message says why.

    Args:
      what: what failed, one line without a full stop.
      why: the probable cause; may be several lines.
      next_command: what to run or do next.
    """

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", next_command: str = ""):
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_command = next_command

    def __str__(self) -> str:
        more = {"why": self.why, "next": self.next_command}
        return "\n".join([self.what, *(f"{key}: {text}" for key, text in more.items() if text)])


class SeriesError(K2mpsError):
    """patches/ is malformed: a header, a path, an order file, an owner."""


class CheckoutMissingError(K2mpsError):
    """There is no k2 checkout where one is needed."""


class ConflictError(K2mpsError):
    """A patch does not apply, or a rebase waits for a decision."""

    exit_code = 14


class BusyError(K2mpsError):
    """Another run of the tool, or of git, holds the checkout."""

    exit_code = 17


class UnreachableError(K2mpsError):
    """Upstream, or pip's package index, cannot be reached."""

    exit_code = 20


class IndexUnreachableError(K2mpsError):
    """pip's package index cannot be reached; k2 itself can do without."""

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

    It is no `Exception`: only the command line catches it.
    """

    def __init__(self, signal_number: int):
        super().__init__("interrupted")
        # The shell's convention, so that callers see which signal it was.
        self.exit_code = 128 + signal_number


def too_many_files(what: str) -> K2mpsError:
    """The error if the system lets `what`, or this process, open no more files."""
    return K2mpsError(
        f"{what}: too many open files",
        why="the shell allows a process few open files: ulimit -n",
        next_command="ulimit -n 1024, then run the same command again",
    )


def visible(text: str) -> str:
    """A text that is safe to print: control characters, and those that change the direction of
    writing, become escapes."""
    if text.isprintable():
        return text
    return "".join(
        one
        if one.isprintable() or one in "\n\t"
        else one.encode("unicode_escape", "surrogatepass").decode()
        for one in text
    )


def some(names: Sequence[str], count: int = 3) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - count} more" if names[count:] else ""
    return ", ".join(names[:count]) + more
