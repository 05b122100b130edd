"""Runs git on a working tree.

A command of `Git` runs with

- the user's configuration, which sets line ends, filters and trusted owners;
- no hooks, and the few settings of `_SETTINGS`;
- English messages and a fixed committer;
- no environment variable that names another repository (`scrub_environment`);
- its own session, so that the terminal sends Ctrl-C only to the tool.

For commits and trees, objects.py runs git without the user's configuration.
"""

import errno
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors, process
from k2mps.core.progress import Reporter

# The first version that has `git merge-tree --write-tree`.
MINIMUM_VERSION = (2, 38)

# The committer of the series.  The tool recognises its own commits by this name.  If a user amends
# a commit, git makes the user the committer.
IDENTITY_NAME = "k2-mps"
IDENTITY_EMAIL = "k2-mps@k2-mps.invalid"

_SETTINGS = {
    "color.ui": "false",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    # The reflog keeps the commits to which a branch pointed before.
    "core.logAllRefUpdates": "always",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.quotePath": "false",
    "core.safecrlf": "false",
    # A split index that the tool writes may delete the shared part of the checkout's index.
    "core.splitIndex": "false",
    # `git status` fails if the user's file is missing.
    "diff.orderFile": os.devnull,
    "submodule.recurse": "false",
}

# With these settings, each file in the tool's own clone has exactly the bytes of its blob.
_LITERAL = {"core.attributesFile": os.devnull, "core.autocrlf": "false", "core.eol": "lf"}

# The environment variables of git that the tool keeps.  They choose git's configuration, its
# transport, and where git searches for repositories and programs.  Other variables could name
# another repository, or change git's output.
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
# git's message if a lock file exists.  A running git command uses the file, or a killed git command
# has left it.
_LOCKED = re.compile(r"Unable to create '([^']+\.lock)': File exists")


def scrub_environment() -> None:
    """Removes git's environment variables from this process, except those that `_KEPT` matches.

    If a git hook or alias runs the tool, git has set variables that name the hook's repository.
    """
    for name in list(os.environ):
        if name.startswith("GIT_") and not _KEPT.match(name):
            del os.environ[name]


class Result(NamedTuple):
    """The result of a command: its exit status, its output, and what it wrote to stderr."""

    status: int
    stdout: bytes
    stderr: str


class Git:
    """Runs git in one directory.

    Attributes:
      shown: the directory that messages name.  In the subclass `Objects`, it is not `directory`.

    Args:
      directory: the directory in which the commands run.
      git_dir: the repository whose working tree is `directory`; if None, git searches for it.
      literal: whether each file has exactly the bytes of its blob, as in the tool's own clone.
    """

    def __init__(
        self,
        directory: Path,
        git_dir: Path | None = None,
        *,
        literal: bool = False,
        reporter: Reporter = Reporter(),
    ):
        self.directory = self.shown = Path(directory)
        self.reporter = reporter
        self._options = ["--no-pager", *settings(_SETTINGS)]
        self._variables = {}
        if literal:
            self._options += settings(_LITERAL)
            self._variables["GIT_ATTR_NOSYSTEM"] = "1"
        if git_dir:
            self._variables |= {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(directory)}

    def _environment(self) -> dict[str, str]:
        """Returns the environment variables of each command."""
        return {**os.environ, **_ENVIRONMENT, **self._variables}

    def run(
        self, *args: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> Result:
        """Runs a command that needs no network, and returns its result even if the command fails.

        Args:
          args: the command, without the leading "git".
          stdin: the command's input.
          environment: further environment variables for the command.
        Raises:
          BusyError: another git command has locked a file.
          K2mpsError: a signal has ended git, or the disk is full.
        """
        self.reporter.command(["git", *map(redacted, args)])
        with process.started(
            ["git", *self._options, *args],
            grace=10,
            cwd=self.directory,
            env={**self._environment(), **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as command:
            stdout, stderr = command.communicate(stdin)
        if command.returncode < 0:
            raise errors.ended_by_signal(f"git {args[0]}", command.returncode)
        result = Result(command.returncode, stdout, stderr.decode("utf-8", "replace").strip())
        if result.status:
            check_resources(args[0], result.stderr, self.shown)
        return result

    def bytes(self, *args: str, **kwargs) -> bytes:
        """Runs a command and returns its output; raises `K2mpsError` if the command fails."""
        result = self.run(*args, **kwargs)
        if result.status != 0:
            raise self.failure(args, result)
        return result.stdout

    def text(self, *args: str, **kwargs) -> str:
        """Like `bytes`, but returns the output as text, without the final newline."""
        return os.fsdecode(self.bytes(*args, **kwargs)).rstrip("\n")

    def failure(self, args: Sequence[str], result: Result) -> errors.K2mpsError:
        """Returns the error for a command that failed; arguments as for `run`."""
        return errors.K2mpsError(
            f"git {redacted(args[0])} failed with status {result.status} in {self.shown}",
            why=redacted(result.stderr),
            next_command="k2mps --verbose shows the command that failed;"
            f" git -C {quoted(self.shown)} status tells more",
        )


def check_resources(command: str, stderr: str, directory: Path) -> None:
    """Raises an error if git failed because of a full disk or a lock.

    Args:
      stderr: git's messages.
    """
    full = any(sign in stderr for sign in _DISK_FULL)
    if full or (re.search("writ|creat", stderr) and _is_full(directory)):
        raise errors.K2mpsError(
            f"no space left while running git {command}",
            why=redacted(stderr),
            next_command="free some space, then run the same command again",
        )
    locked = _LOCKED.search(stderr)
    if locked:
        raise errors.BusyError(
            f"{locked[1]} exists",
            why="a git command is running in the checkout, or one was killed",
            next_command="if none is running, delete that file, then run the same command again",
        )


def settings(values: Mapping[str, str]) -> list[str]:
    """Returns the options `-c NAME=VALUE` of git for these settings."""
    return [word for name, value in values.items() for word in ("-c", f"{name}={value}")]


def split_z(output: bytes) -> list[str]:
    """Splits the output of a command with -z into its fields."""
    return [os.fsdecode(field) for field in output.split(b"\0")[:-1]]


def version() -> tuple[int, ...]:
    """Returns the version of the git on the PATH, such as (2, 43, 0); empty if there is no git."""
    try:
        output = subprocess.run(["git", "version"], capture_output=True, text=True).stdout
    except OSError:
        return ()
    numbers = re.findall(r"\d+", output)
    return tuple(int(number) for number in numbers[:3])


def _is_full(directory: Path) -> bool:
    """Whether the disk is full.

    Tries to write a small file, because git does not always say that the disk is full.
    """
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(bytes(1 << 16))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def redacted(text: str) -> str:
    """Returns a text in which `***` replaces user names and passwords in URLs."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)


def pathspecs(paths: Iterable[str]) -> str:
    """Returns paths as words of a git command for the user.

    git would read a path such as "a[1].h" as a pattern, which other files match, too.
    """
    words = []
    for path in paths:
        is_special = path.startswith(":") or any(letter in path for letter in "*?[\\")
        words.append(f":(literal){path}" if is_special else path)
    return shlex.join(words)


def quoted(path: object) -> str:
    """Quotes a path for the shell, in a command that the user may copy."""
    return shlex.quote(str(path))
