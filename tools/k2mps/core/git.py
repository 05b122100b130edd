"""git, with every setting fixed that could change a result.

A command of `Git` runs with

- the settings in `_FIXED`, so that the user's configuration changes no result;
- English messages, a fixed committer and no environment variable that names another repository
  (`scrub_environment`);
- a session of its own, so that only the tool gets a Ctrl-C.

Commands on the working tree (`work_tree`) use the checkout's line ends and filters, so that a CRLF
checkout stays one; the tool compares and commits blobs only.  repository.py runs GitPython's
commands in the same way.
"""

import contextlib
import errno
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors, process
from k2mps.core.progress import Reporter

# `git merge-tree --write-tree` needs it.
MINIMUM_VERSION = (2, 38)

# The committer of the series.  The tool recognises its own commits by it: a user
# who amends one is its committer.
IDENTITY_NAME = "k2-mps"
IDENTITY_EMAIL = "k2-mps@k2-mps.invalid"

_FIXED = {
    "am.keepcr": "true",
    "am.messageid": "false",
    "am.threeWay": "false",
    "apply.ignoreWhitespace": "no",
    "apply.whitespace": "nowarn",
    "color.ui": "false",
    "commit.gpgSign": "false",
    "core.bigFileThreshold": "512m",
    "core.checkStat": "default",
    "core.commentChar": "#",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    # A third of `git am`'s time goes into packing small objects, which git packs again anyway.
    "core.looseCompression": "0",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.quotePath": "false",
    "core.splitIndex": "false",
    "core.trustctime": "true",
    "core.untrackedCache": "false",
    "diff.orderFile": os.devnull,
    "diff.relative": "false",
    "diff.renames": "false",
    "diff.suppressBlankEmpty": "false",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "log.follow": "false",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "merge.conflictStyle": "diff3",
    "merge.directoryRenames": "false",
    "merge.renames": "true",
    "rebase.abbreviateCommands": "false",
    "rebase.updateRefs": "false",
    "rerere.autoUpdate": "true",
    "rerere.enabled": "true",
    "submodule.recurse": "false",
}

# Git's conversions of a file's bytes between the working tree and a blob.
_NO_CONVERSION = {
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.safecrlf": "false",
}

# Where the index says that a file is the same as a blob, these commands would show the file, which
# may have other line ends; so they get an index that does not exist.
_WITHOUT_INDEX = ("diff-tree", "log")

# The variables for git that stay: configuration, transport, and where git looks.  Any
# other one can name another repository or change git's output.
_KEPT = re.compile(
    "GIT_(ALLOW_PROTOCOL|ASKPASS|CEILING|CONFIG|CURL|DISCOVERY|EXEC_PATH|HTTP|NO_LAZY_FETCH"
    "|PROTOCOL|PROXY|SSH|SSL|TEMPLATE_DIR|TERMINAL_PROMPT|TRACE|USER_AGENT)"
)

_ENVIRONMENT = {
    "GIT_AUTHOR_EMAIL": IDENTITY_EMAIL,
    "GIT_AUTHOR_NAME": IDENTITY_NAME,
    "GIT_COMMITTER_EMAIL": IDENTITY_EMAIL,
    "GIT_COMMITTER_NAME": IDENTITY_NAME,
    "GIT_EDITOR": ":",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_SEQUENCE_EDITOR": ":",
    "LANGUAGE": "C",
    "LC_ALL": "C",
    "TZ": "UTC",
}

_DISK_FULL = ("No space left on device", "Disk quota exceeded", "Out of diskspace")
# Another command of git holds a file, or a killed one has left it.
_LOCKED = re.compile(r"Unable to create '([^']+\.lock)': File exists")


def scrub_environment() -> None:
    """Removes git's variables from this process, but for those in `_KEPT`.

    A git hook or alias sets them, for another repository than ours.
    """
    for name in list(os.environ):
        if name.startswith("GIT_") and not _KEPT.match(name):
            del os.environ[name]


class Result(NamedTuple):
    """How a command ended: its exit status, what it wrote, and its messages."""

    status: int
    stdout: bytes
    stderr: str


class Git:
    """Runs git in one directory.

    Args:
      directory: where the commands run; a working tree or a git directory.
      literal: files of the working tree are the blobs' bytes, whatever the
        user's conventions are; for clones that the tool has made.
    """

    def __init__(self, directory: Path, *, literal: bool = False, reporter: Reporter = Reporter()):
        self.directory = Path(directory)
        self.literal = literal
        self.reporter = reporter

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        work_tree: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Result:
        """Runs a local command and returns its result, also a failed one.

        Args:
          args: the command, without the leading "git".
          work_tree: the command reads or writes files of the working tree, whose line ends and
            filters are the user's choice unless this is a clone of the tool's.
        """
        self.reporter.command(["git", *map(redacted, args)])
        literal = self.literal or not work_tree
        settings = {**_FIXED, **(_NO_CONVERSION if literal else {})}
        variables = {**os.environ, **_ENVIRONMENT}
        if literal:
            variables["GIT_ATTR_NOSYSTEM"] = "1"
            if args[0] in _WITHOUT_INDEX:
                variables["GIT_INDEX_FILE"] = str(self.directory / ".k2mps-no-index")
        try:
            with process.started(
                ["git", *options(settings), *args],
                grace=10,
                cwd=self.directory,
                env={**variables, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            ) as command:
                stdout, stderr = command.communicate(stdin)
        except FileNotFoundError as error:
            raise missing() if error.filename == "git" else error from None
        result = Result(command.returncode, stdout, stderr.decode("utf-8", "replace").strip())
        if result.status:
            self._check_resources(args[0], result.stderr)
        return result

    def bytes(self, *args: str, **kwargs) -> bytes:
        """Runs a command that must succeed; returns its output as it is."""
        result = self.run(*args, **kwargs)
        if result.status != 0:
            raise self.failure(args, result)
        return result.stdout

    def text(self, *args: str, **kwargs) -> str:
        """As `bytes`, decoded and without the final newline."""
        return os.fsdecode(self.bytes(*args, **kwargs)).rstrip("\n")

    def succeeds(self, *args: str, **kwargs) -> bool:
        """Whether a command that answers by its status says yes."""
        return self.run(*args, **kwargs).status == 0

    def failure(self, args: Sequence[str], result: Result) -> errors.K2mpsError:
        return errors.K2mpsError(
            f"git {redacted(args[0])} failed with status {result.status} in {self.directory}",
            why=redacted(result.stderr),
            next_command="k2mps --verbose shows the command that failed;"
            f" git -C {quoted(self.directory)} status tells more",
        )

    def _check_resources(self, command: str, stderr: str) -> None:
        """Raises what git's message means where the disk or a file of git's is the cause."""
        if disk_full(stderr) or ("unable to write" in stderr and _is_full(self.directory)):
            raise no_space(command, stderr)
        locked = _LOCKED.search(stderr)
        if locked:
            raise errors.BusyError(
                f"{locked[1]} exists",
                why="a git command is running in the checkout, or one was killed",
                next_command="if none is running, delete that file, then run the same command"
                " again",
            )


def split_z(output: bytes) -> list[str]:
    """Splits the output of a command with -z into its fields."""
    return [os.fsdecode(field) for field in output.split(b"\0")[:-1]]


@contextlib.contextmanager
def own_index() -> Iterator[dict[str, str]]:
    """The environment in which git has an index of its own, which does not exist yet.

    No other run uses it, so the lock that a killed git leaves beside it is in nobody's way.
    """
    import tempfile

    with tempfile.TemporaryDirectory(prefix="k2mps-") as folder:
        yield {"GIT_INDEX_FILE": os.path.join(folder, "index")}


def version() -> tuple[int, ...]:
    """The version of the git that is found on the PATH; none where there is no git."""
    try:
        output = subprocess.run(["git", "version"], capture_output=True, text=True).stdout
    except OSError:
        return ()
    return tuple(map(int, re.findall(r"\d+", output)[:3]))


def disk_full(stderr: str) -> bool:
    return any(sign in stderr for sign in _DISK_FULL)


def no_space(command: str, stderr: str) -> errors.K2mpsError:
    return errors.K2mpsError(
        f"no space left while running git {command}",
        why=redacted(stderr),
        next_command="free some space, then run the same command again",
    )


def missing() -> errors.RequirementMissingError:
    return errors.RequirementMissingError(
        "there is no git on the PATH",
        why="k2mps uses git for all that it does with k2",
        next_command="install git, by apt install git, dnf install git or"
        " xcode-select --install; then run the same command again",
    )


def options(settings: Mapping[str, str]) -> list[str]:
    found = ["--no-pager"]
    for name, value in settings.items():
        found += ["-c", f"{name}={value}"]
    return found


def _is_full(directory: Path) -> bool:
    """Whether no small file can be written: git does not always give the reason."""
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(bytes(1 << 16))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def redacted(text: str) -> str:
    """A text without the passwords in its URLs."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)


def quoted(path: object) -> str:
    """A path for a command that a user copies."""
    return shlex.quote(str(path))
