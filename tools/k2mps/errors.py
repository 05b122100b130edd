"""Every failure the tool reports, one class and one exit code per cause.

An error carries three things and is printed as such: what failed, why that
probably happened, and the command to run next.  The library raises these;
only the command line prints them and turns them into exit codes.

Exit codes are part of the interface: scripts and CI may branch on them, so a
number is never given a second meaning.  0 is success, 1 an unforeseen error,
2 a wrong command line.
"""

from __future__ import annotations


class K2mpsError(Exception):
    """Base of all errors that the tool foresees.

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
        lines = [self.what]
        if self.why:
            lines.append(f"why: {self.why}")
        if self.next_command:
            lines.append(f"next: {self.next_command}")
        return "\n".join(lines)


class ConfigError(K2mpsError):
    """upstream.toml is missing, malformed or contradicts itself."""

    exit_code = 3


class SeriesError(K2mpsError):
    """patches/ is malformed: a header, a path, an order file, an owner."""

    exit_code = 4


class UnsafePathError(SeriesError):
    """A patch names a path outside the files it may touch."""

    exit_code = 5


class LockMismatchError(K2mpsError):
    """patches/ is not what upstream.toml locks."""

    exit_code = 6


class LintError(K2mpsError):
    """`k2mps lint` has findings."""

    exit_code = 7


class CheckoutMissingError(K2mpsError):
    """There is no k2 checkout where one is needed."""

    exit_code = 10


class DirtyCheckoutError(K2mpsError):
    """The checkout has uncommitted edits or an operation in progress."""

    exit_code = 11


class WrongCommitError(K2mpsError):
    """The checkout stands at a commit the series was not made for."""

    exit_code = 12


class UserCommitsError(K2mpsError):
    """Branch k2-mps holds commits that the tool did not make."""

    exit_code = 13


class PatchConflictError(K2mpsError):
    """A patch does not apply."""

    exit_code = 14


class TreeMismatchError(K2mpsError):
    """The series applies, but not to the tree that upstream.toml locks."""

    exit_code = 15


class ObstructedError(K2mpsError):
    """A file that git does not track stands where a new file must go."""

    exit_code = 16


class BusyError(K2mpsError):
    """Another run of the tool, or of git, holds the checkout."""

    exit_code = 17


class BranchElsewhereError(K2mpsError):
    """Branch k2-mps is checked out in another worktree."""

    exit_code = 18


class RebaseStoppedError(K2mpsError):
    """A rebase needs a decision before it can go on, or there is none."""

    exit_code = 19


class UnreachableError(K2mpsError):
    """Upstream cannot be reached."""

    exit_code = 20


class CommitMissingError(K2mpsError):
    """Upstream answers but does not have the pinned commit."""

    exit_code = 21


class DiskFullError(K2mpsError):
    """The disk or the quota is full."""

    exit_code = 22


class GitError(K2mpsError):
    """git failed in a way that has no class of its own."""

    exit_code = 23


class ExportRefusedError(K2mpsError):
    """Exporting would lose or garble something."""

    exit_code = 24


class AuthoringRefusedError(K2mpsError):
    """A patch cannot be made, changed or dropped as asked."""

    exit_code = 29


class UndoRefusedError(K2mpsError):
    """There is nothing to undo, or it is another clone's."""

    exit_code = 28


class SubmissionError(K2mpsError):
    """The series cannot be made a pull request as asked."""

    exit_code = 35


class CleanRefusedError(K2mpsError):
    """Cleaning would delete work."""

    exit_code = 25


class FileAccessError(K2mpsError):
    """A file or directory cannot be read or written."""

    exit_code = 26


class RequirementMissingError(K2mpsError):
    """Something that the build needs is not installed."""

    exit_code = 30


class ConfigureError(K2mpsError):
    """CMake could not configure k2."""

    exit_code = 31


class CompileError(K2mpsError):
    """k2 does not compile or link."""

    exit_code = 32


class DemoError(K2mpsError):
    """k2 was built, but the demonstration fails."""

    exit_code = 33


class TestsFailedError(K2mpsError):
    """A suite has failures, or has collected nothing."""

    exit_code = 34


class NoGpuError(K2mpsError):
    """There is no NVIDIA GPU where one was asked for."""

    exit_code = 36


class IndexUnreachableError(K2mpsError):
    """pip's package index cannot be reached."""

    exit_code = 27


class WheelError(K2mpsError):
    """A wheel was built but cannot be installed or imported."""

    exit_code = 40


class WheelVerificationError(K2mpsError):
    """A wheel is not what it should be."""

    exit_code = 41


class WheelsDifferError(K2mpsError):
    """Two wheels that should be the same are not."""

    exit_code = 42


class InterruptedRunError(K2mpsError):
    """Ctrl-C or a termination signal arrived."""

    exit_code = 130

    def __init__(self, signal_number: int):
        super().__init__("interrupted")
        self.signal_number = signal_number
        # The shell's convention, so that callers see which signal it was.
        self.exit_code = 128 + signal_number
