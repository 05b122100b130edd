"""The kinds of failure that the tool reports, each with an exit code.

An error tells what failed, the probable cause, and the command to run next.  The
library raises errors; the command line prints them and exits with their codes.
`k2mps docs` writes the table of the kinds.

Exit codes are part of the interface: scripts and CI may branch on them, so a
number never gets a second meaning; 15, 25, 28, 29, 31, 35 and 40 are retired.  0 is
success, 1 an unforeseen error, 2 a wrong command line.
"""

from __future__ import annotations

from collections.abc import Sequence


class K2mpsError(Exception):
    """Base of all errors that the tool foresees.

    Args:
      what: what failed, one line without a full stop.
      why: the probable cause; may be several lines.
      next_command: what to run or do next.
    """

    exit_code = 1
    remedy = ""

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


def some(names: Sequence[str], count: int) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - count} more" if names[count:] else ""
    return ", ".join(names[:count]) + more


def _kind(
    name: str, code: int, meaning: str, remedy: str, base: type[K2mpsError] = K2mpsError
) -> type[K2mpsError]:
    """A kind of error with its exit code, meaning and remedy."""
    facts = {"__doc__": meaning, "__module__": __name__, "exit_code": code, "remedy": remedy}
    return type(name, (base,), facts)


ConfigError = _kind(
    "ConfigError",
    3,
    "upstream.toml is missing, malformed or contradicts itself.",
    "Correct the line of upstream.toml, the option or the variable that the message names; "
    "`git checkout upstream.toml` brings the committed file back.",
)
SeriesError = _kind(
    "SeriesError",
    4,
    "patches/ is malformed: a header, a path, an order file, an owner.",
    "Correct the file of patches/ that the message names, then `k2mps lint`.",
)
UnsafePathError = _kind(
    "UnsafePathError",
    5,
    "A patch names a path outside the files it may touch.",
    "Do not apply a patch like that before you have read it. Patches may touch files of k2 "
    "only, by relative paths.",
    base=SeriesError,
)
LockMismatchError = _kind(
    "LockMismatchError",
    6,
    "patches/ is not what upstream.toml locks.",
    "If the change of patches/ is meant, `k2mps lock`; else `git checkout patches upstream.toml`.",
)
LintError = _kind(
    "LintError", 7, "`k2mps lint` has findings.", "Correct the findings, then `k2mps lock`."
)
CheckoutMissingError = _kind(
    "CheckoutMissingError",
    10,
    "There is no k2 checkout where one is needed.",
    "`k2mps checkout` clones k2, or name your own with `--k2`.",
)
DirtyCheckoutError = _kind(
    "DirtyCheckoutError",
    11,
    "The checkout has uncommitted edits or an operation in progress.",
    "Commit or stash your edits in the checkout, or finish git's operation there.",
)
WrongCommitError = _kind(
    "WrongCommitError",
    12,
    "The checkout stands at a commit the series was not made for.",
    "Check the pinned commit out, or carry the series to yours with `k2mps rebase --onto`.",
)
UserCommitsError = _kind(
    "UserCommitsError",
    13,
    "Branch k2-mps holds commits that the tool did not make.",
    "`k2mps export` makes patches of these commits; or move them to another branch.",
)
PatchConflictError = _kind(
    "PatchConflictError",
    14,
    "A patch does not apply.",
    "Read the printed hunk. `k2mps rebase --onto` resolves conflicts with a newer k2 in a "
    "worktree of its own.",
)
ObstructedError = _kind(
    "ObstructedError",
    16,
    "A file that git does not track stands where a new file must go.",
    "Move the named file out of the checkout.",
)
BusyError = _kind(
    "BusyError",
    17,
    "Another run of the tool, or of git, holds the checkout.",
    "Wait for the other run to end. A lock ends with its process; never remove it.",
)
BranchElsewhereError = _kind(
    "BranchElsewhereError",
    18,
    "Branch k2-mps is checked out in another worktree.",
    "`git worktree list` names the worktree; remove it or switch its branch.",
)
RebaseStoppedError = _kind(
    "RebaseStoppedError",
    19,
    "A rebase waits for a decision, or no rebase is in progress.",
    "Resolve the conflicts that `git -C build/rebase status` lists, then "
    "`k2mps rebase --continue`, or `--abort`.",
)
UnreachableError = _kind(
    "UnreachableError",
    20,
    "Upstream cannot be reached.",
    "Check the network, or name a clone that you have with `--k2 DIR`.",
)
CommitMissingError = _kind(
    "CommitMissingError",
    21,
    "Upstream answers but does not have the pinned commit.",
    "Check the url and the commit in upstream.toml; a shallow clone may have to be deepened.",
)
DiskFullError = _kind(
    "DiskFullError",
    22,
    "The disk or the quota is full.",
    "Free some space, or `k2mps clean`; then run the same command again.",
)
GitError = _kind(
    "GitError",
    23,
    "git failed in a way that has no class of its own.",
    "Read git's message; `k2mps --verbose` shows the command that failed.",
)
RefusedError = _kind(
    "RefusedError",
    24,
    "The command would lose or garble something, or cannot do what it was told.",
    "Follow the message; `k2mps status` shows the state. Nothing was written.",
)
FileAccessError = _kind(
    "FileAccessError",
    26,
    "A file or directory cannot be read or written.",
    "Check owner, permissions and kind of the named file.",
)
RequirementMissingError = _kind(
    "RequirementMissingError",
    30,
    "Something that the build needs is not installed.",
    "Run the command at the end of the message; `k2mps doctor` lists all missing parts.",
)
CompileError = _kind(
    "CompileError",
    32,
    "k2 cannot be configured, compiled or linked.",
    "Read the log that the message names; `k2mps doctor` lists missing parts. After an edit, "
    "`k2mps build` continues where it stopped.",
)
DemoError = _kind(
    "DemoError",
    33,
    "k2 was built, but the demonstration failed.",
    "`k2mps test` shows which tests fail.",
)
TestsFailedError = _kind(
    "TestsFailedError",
    34,
    "A suite has failures, or no tests.",
    "Read the named log in build/tests; `k2mps test SUITE -- -k NAME` repeats one test.",
)
NoGpuError = _kind(
    "NoGpuError",
    36,
    "`--device cuda` needs an NVIDIA GPU, and there is none.",
    "`k2mps kernels --prepare DIR` makes a folder to run on a machine with a GPU.",
)
BenchmarkError = _kind(
    "BenchmarkError",
    37,
    "The benchmark fails, or `--compare` names a file of another machine.",
    "Read the message; compare runs of the same machine only.",
)
IndexUnreachableError = _kind(
    "IndexUnreachableError",
    27,
    "pip's package index cannot be reached.",
    "Check the network and pip's own settings: index, proxy, certificates.",
)
WheelVerificationError = _kind(
    "WheelVerificationError",
    41,
    "A wheel fails a check, or cannot be installed or imported.",
    "Do not publish the wheel. Each finding names file and check; `k2mps wheel` makes a new one.",
)
WheelsDifferError = _kind(
    "WheelsDifferError",
    42,
    "Two wheels that should be the same are not.",
    "`k2mps wheel compare FIRST SECOND` lists the differences.",
)
DocsError = _kind(
    "DocsError",
    43,
    "The documentation does not build without warnings.",
    "Correct the named page, then `k2mps docs`.",
)


class InterruptedRunError(K2mpsError):
    """Ctrl-C or a termination signal arrived."""

    exit_code = 130
    remedy = (
        "Run the same command again: each step of the interrupted run was either"
        " completed or not done at all."
    )

    def __init__(self, signal_number: int):
        super().__init__("interrupted")
        self.signal_number = signal_number
        # The shell's convention, so that callers see which signal it was.
        self.exit_code = 128 + signal_number


def few(names: Sequence[str], most: int = 3) -> str:
    """The first of these names, and how many there are besides."""
    more = f" and {len(names) - most} more" if names[most:] else ""
    return ", ".join(names[:most]) + more
