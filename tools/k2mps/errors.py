"""Every failure the tool reports, one class and one exit code per cause.

An error carries three things and is printed as such: what failed, why that
probably happened, and the command to run next.  The library raises these;
only the command line prints them and turns them into exit codes.  What helps
against a kind of error is the second paragraph of its class; `k2mps docs`
makes a table of these.

Exit codes are part of the interface: scripts and CI may branch on them, so a
number is never given a second meaning (15 had one once).  0 is success, 1 an
unforeseen error, 2 a wrong command line.
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
    """upstream.toml is missing, malformed or contradicts itself.

    Remedy: Correct the line of upstream.toml, the option or the variable that
    the message names; `git checkout upstream.toml` brings the committed file
    back.
    """

    exit_code = 3


class SeriesError(K2mpsError):
    """patches/ is malformed: a header, a path, an order file, an owner.

    Remedy: Correct the file of patches/ that the message names, then `k2mps
    lint`.
    """

    exit_code = 4


class UnsafePathError(SeriesError):
    """A patch names a path outside the files it may touch.

    Remedy: Do not apply a patch like that before you have read it. Patches may
    touch files of k2 only, by relative paths.
    """

    exit_code = 5


class LockMismatchError(K2mpsError):
    """patches/ is not what upstream.toml locks.

    Remedy: If the change of patches/ is meant, `k2mps lock`; else `git
    checkout patches upstream.toml`.
    """

    exit_code = 6


class LintError(K2mpsError):
    """`k2mps lint` has findings.

    Remedy: Correct what it lists, then `k2mps lock`.
    """

    exit_code = 7


class CheckoutMissingError(K2mpsError):
    """There is no k2 checkout where one is needed.

    Remedy: `k2mps checkout` clones k2, or name your own with `--k2`.
    """

    exit_code = 10


class DirtyCheckoutError(K2mpsError):
    """The checkout has uncommitted edits or an operation in progress.

    Remedy: Commit or stash your edits in the checkout, or end the operation of
    git that is in progress there.
    """

    exit_code = 11


class WrongCommitError(K2mpsError):
    """The checkout stands at a commit the series was not made for.

    Remedy: Check the pinned commit out, or carry the series to yours with
    `k2mps rebase --onto`.
    """

    exit_code = 12


class UserCommitsError(K2mpsError):
    """Branch k2-mps holds commits that the tool did not make.

    Remedy: `k2mps export` makes patches of them; or move them to another
    branch.
    """

    exit_code = 13


class PatchConflictError(K2mpsError):
    """A patch does not apply.

    Remedy: Read the hunk that is shown. `k2mps rebase --onto` resolves
    conflicts with a newer k2 in a worktree of its own.
    """

    exit_code = 14


class ObstructedError(K2mpsError):
    """A file that git does not track stands where a new file must go.

    Remedy: Move the file that is named out of the checkout.
    """

    exit_code = 16


class BusyError(K2mpsError):
    """Another run of the tool, or of git, holds the checkout.

    Remedy: Wait for the other run to end. A lock goes with its process and
    never has to be removed.
    """

    exit_code = 17


class BranchElsewhereError(K2mpsError):
    """Branch k2-mps is checked out in another worktree.

    Remedy: `git worktree list` tells where; remove that worktree or switch its
    branch.
    """

    exit_code = 18


class RebaseStoppedError(K2mpsError):
    """A rebase needs a decision before it can go on, or there is none.

    Remedy: Resolve what `git -C build/rebase status` lists, then `k2mps rebase
    --continue`, or `--abort`.
    """

    exit_code = 19


class UnreachableError(K2mpsError):
    """Upstream cannot be reached.

    Remedy: Check the network, or name a clone that you have with `--k2 DIR`.
    """

    exit_code = 20


class CommitMissingError(K2mpsError):
    """Upstream answers but does not have the pinned commit.

    Remedy: Check the url and the commit in upstream.toml; a shallow clone may
    have to be deepened.
    """

    exit_code = 21


class DiskFullError(K2mpsError):
    """The disk or the quota is full.

    Remedy: Free some space, or `k2mps clean`; then run the same command again.
    """

    exit_code = 22


class GitError(K2mpsError):
    """git failed in a way that has no class of its own.

    Remedy: Read git's message; `k2mps --verbose` shows the command that
    failed.
    """

    exit_code = 23


class ExportRefusedError(K2mpsError):
    """Exporting would lose or garble something.

    Remedy: Change the commit that is named as the message says. Nothing was
    written.
    """

    exit_code = 24


class AuthoringRefusedError(K2mpsError):
    """A patch cannot be made, changed or dropped as asked.

    Remedy: Follow the message; `k2mps status` shows the edits. Nothing was
    written.
    """

    exit_code = 29


class UndoRefusedError(K2mpsError):
    """There is nothing to undo, or it is another clone's.

    Remedy: `k2mps undo --list` shows what can be undone here.
    """

    exit_code = 28


class SubmissionError(K2mpsError):
    """The series cannot be made a pull request as asked.

    Remedy: Follow the message: name another branch, or patches that do not
    need those left out.
    """

    exit_code = 35


class CleanRefusedError(K2mpsError):
    """Cleaning would delete work.

    Remedy: Commit or export the work that is named, or delete the clone by
    hand.
    """

    exit_code = 25


class FileAccessError(K2mpsError):
    """A file or directory cannot be read or written.

    Remedy: Check owner, permissions and kind of the file that is named.
    """

    exit_code = 26


class RequirementMissingError(K2mpsError):
    """Something that the build needs is not installed.

    Remedy: Run the command that the message ends with; `k2mps doctor` lists
    all that is missing.
    """

    exit_code = 30


class ConfigureError(K2mpsError):
    """CMake could not configure k2.

    Remedy: Read configure.log, which the message names; `k2mps doctor` tells
    what is missing.
    """

    exit_code = 31


class CompileError(K2mpsError):
    """k2 does not compile or link.

    Remedy: Read build.log, which the message names; after an edit, `k2mps
    build` goes on where it stopped.
    """

    exit_code = 32


class DemoError(K2mpsError):
    """k2 was built, but the demonstration fails.

    Remedy: `k2mps test` shows what else fails.
    """

    exit_code = 33


class TestsFailedError(K2mpsError):
    """A suite has failures, or has collected nothing.

    Remedy: Read the log in build/tests that is named; `k2mps test SUITE -- -k
    NAME` repeats one test.
    """

    exit_code = 34


class NoGpuError(K2mpsError):
    """There is no NVIDIA GPU where one was asked for.

    Remedy: `k2mps kernels --prepare DIR` makes a folder that runs where there
    is one.
    """

    exit_code = 36


class BenchmarkError(K2mpsError):
    """The benchmark does not run, or is compared with another machine's.

    Remedy: Read the message; compare only runs of one machine.
    """

    exit_code = 37


class RecipesError(K2mpsError):
    """Recipes cannot be rewritten or taken back as asked.

    Remedy: Follow the message. Nothing was written.
    """

    exit_code = 38


class IndexUnreachableError(K2mpsError):
    """pip's package index cannot be reached.

    Remedy: Check the network and pip's own settings: index, proxy,
    certificates.
    """

    exit_code = 27


class WheelError(K2mpsError):
    """A wheel was built but cannot be installed or imported.

    Remedy: Read pip's output in the message; `k2mps wheel` makes the wheel
    anew.
    """

    exit_code = 40


class WheelVerificationError(K2mpsError):
    """A wheel is not what it should be.

    Remedy: Do not publish the wheel. Each finding names file and check; `k2mps
    wheel` makes it anew.
    """

    exit_code = 41


class WheelsDifferError(K2mpsError):
    """Two wheels that should be the same are not.

    Remedy: `k2mps compare-wheels FIRST SECOND` names what differs.
    """

    exit_code = 42


class DocsError(K2mpsError):
    """The documentation does not build without warnings.

    Remedy: Correct the page that is named, then `k2mps docs`.
    """

    exit_code = 43


class InterruptedRunError(K2mpsError):
    """Ctrl-C or a termination signal arrived.

    Remedy: Run the same command again: what was under way is as before it or
    completed, never between.
    """

    exit_code = 130

    def __init__(self, signal_number: int):
        super().__init__("interrupted")
        self.signal_number = signal_number
        # The shell's convention, so that callers see which signal it was.
        self.exit_code = 128 + signal_number
