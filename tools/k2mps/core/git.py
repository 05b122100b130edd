"""git, with every setting fixed that could change a result.

A command of `Git` runs with

- the settings in `_FIXED`, so that the user's configuration changes no result;
- English messages, a fixed identity and no environment variable that names another repository
  (`scrub_environment`);
- a session of its own, so that only the tool gets a Ctrl-C.

Two kinds of commands are less strict.  `network` commands use the user's configuration: insteadOf,
proxies, credentials.  Commands on the working tree (`work_tree`) use the checkout's line ends and
filters, so that a CRLF checkout stays one; the tool compares and commits blobs only.
"""

import contextlib
import errno
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors, process
from k2mps.core.progress import Reporter

# `git apply --cached --3way` needs it.
MINIMUM_VERSION = (2, 32)

# The committer of the series.  The tool recognises its own commits by it: a user
# who amends one is its committer.
IDENTITY_NAME = "k2-mps"
IDENTITY_EMAIL = "k2-mps@k2-mps.invalid"

_FIXED = {
    "advice.detachedHead": "false",
    "am.threeWay": "false",
    "apply.ignoreWhitespace": "no",
    "apply.whitespace": "nowarn",
    "color.ui": "false",
    "commit.gpgSign": "false",
    "core.bigFileThreshold": "512m",
    "core.checkStat": "default",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.quotePath": "false",
    "core.splitIndex": "false",
    "core.trustctime": "true",
    "core.untrackedCache": "false",
    "diff.algorithm": "myers",
    "diff.context": "1",
    "diff.indentHeuristic": "true",
    "diff.interHunkContext": "0",
    "diff.mnemonicPrefix": "false",
    "diff.noprefix": "false",
    "diff.orderFile": os.devnull,
    "diff.relative": "false",
    "diff.renames": "false",
    "diff.submodule": "short",
    "diff.suppressBlankEmpty": "false",
    "fastimport.unpackLimit": "100",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "log.follow": "false",
    "log.mailmap": "false",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "pack.compression": "1",
    "status.relativePaths": "false",
    "status.renames": "false",
    "status.showUntrackedFiles": "no",
    "submodule.recurse": "false",
}

# Git's conversions of a file's bytes between the working tree and a blob.
_NO_CONVERSION = {
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.safecrlf": "false",
}

# Commands that show blobs.  Where the index says that a file is the same as a blob, git would show
# the file, which may have other line ends; so these commands get an index that does not exist.
_WITHOUT_INDEX = ("diff-tree", "format-patch", "log")

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
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LANGUAGE": "C",
    "LC_ALL": "C",
    "TZ": "UTC",
}

# The settings of clone and fetch: none of them changes how upstream is reached.
_NETWORK = {
    "core.hooksPath": os.devnull,
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
}

# "Receiving objects:  45% (9/20), 1.2 MiB", or with a number only.
_PROGRESS = re.compile(
    r"(remote: )?(?P<title>[A-Z][a-z ]+): +"
    r"(\d+% \((?P<done>\d+)/(?P<total>\d+)\)|\d+(,|$))"
)

_DISK_FULL = ("No space left on device", "Disk quota exceeded", "Out of diskspace")


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
      index: an index file to use in place of the repository's own.
      literal: files of the working tree are the blobs' bytes, whatever the
        user's conventions are; for clones that the tool has made.
    """

    def __init__(
        self,
        directory: Path,
        *,
        index: Path | None = None,
        literal: bool = False,
        reporter: Reporter = Reporter(),
    ):
        self.directory = Path(directory)
        self.index = index
        self.literal = literal
        self._reporter = reporter

    def with_index(self, index: Path) -> "Git":
        """The same directory seen through another index file."""
        return Git(self.directory, index=index, literal=self.literal, reporter=self._reporter)

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
        settings = dict(_FIXED)
        variables = dict(_ENVIRONMENT)
        if self.literal or not work_tree:
            settings.update(_NO_CONVERSION)
            variables["GIT_ATTR_NOSYSTEM"] = "1"
            if args[0] in _WITHOUT_INDEX:
                none = self.directory / ".k2mps-no-index"
                variables["GIT_INDEX_FILE"] = str(none)
            elif args[0] == "fast-import":
                # Two paths of a tree are two files, whatever the file system says.
                settings["core.ignoreCase"] = "false"
        if self.index is not None:
            variables["GIT_INDEX_FILE"] = str(self.index)
        variables.update(environment or {})
        result = self._execute(_options(settings), args, stdin, variables)
        if any(sign in result.stderr for sign in _DISK_FULL) or (
            "unable to write file" in result.stderr and _is_full(self.directory)
        ):
            raise _disk_full(args[0], result.stderr)
        return result

    def merge(self, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
        """Merges texts; None for a conflict."""
        import tempfile

        with tempfile.TemporaryDirectory(prefix="k2mps-") as folder:
            files = [Path(folder, name) for name in ("ours", "base", "theirs")]
            for file, text in zip(files, (ours, base, theirs)):
                file.write_bytes(text)
            result = self.run("merge-file", "--stdout", "--quiet", *map(str, files))
        return result.stdout if result.status == 0 else None

    def bytes(self, *args: str, **kwargs) -> bytes:
        """Runs a command that must succeed; returns its output as it is."""
        result = self.run(*args, **kwargs)
        if result.status != 0:
            raise errors.K2mpsError(
                f"git {' '.join(args)} failed with status {result.status} in {self.directory}",
                why=result.stderr,
                next_command="k2mps --verbose shows the command that failed;"
                f" git -C {self.directory} status tells more",
            )
        return result.stdout

    def text(self, *args: str, **kwargs) -> str:
        """As `bytes`, decoded and without the final newline."""
        return os.fsdecode(self.bytes(*args, **kwargs)).rstrip("\n")

    def succeeds(self, *args: str, **kwargs) -> bool:
        """Whether a command that answers by its status says yes."""
        return self.run(*args, **kwargs).status == 0

    def network(self, title: str, *args: str) -> None:
        """Runs clone or fetch, under the user's configuration.

        The command keeps the terminal, where ssh or a credential helper may have to ask something.

        Args:
          title: what the progress display calls the work.
          args: the command; `--progress` is added here.
        Raises:
          NotThereError: upstream answers that it lacks the commit or branch.
          UnreachableError: the command failed otherwise.
        """
        command, *rest = args
        self._reporter.command(["git", *map(redacted, args)])
        with (
            _started(
                [*_options(_NETWORK), command, "--progress", *rest],
                cwd=self.directory,
                env={**os.environ, "LANGUAGE": "C", "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            ) as command_run,
            self._reporter.task(title) as task,
        ):
            stderr = _follow_progress(command_run, task)
        if any(sign in stderr for sign in _DISK_FULL):
            raise _disk_full(command, stderr)
        if command_run.returncode != 0:
            lacks = "not our ref" in stderr or "remote ref" in stderr
            raise (errors.NotThereError if lacks else errors.UnreachableError)(
                f"git {command} failed: {stderr.splitlines()[-1] if stderr else 'no message'}",
                why=stderr,
                next_command="check the network and the url in upstream.toml,"
                " then run the same command again",
            )

    def _execute(self, options, args, stdin, variables) -> Result:
        self._reporter.command(["git", *map(redacted, args)])
        with _started(
            [*options, *args],
            cwd=self.directory,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as command:
            stdout, stderr = _communicate(command, stdin)
        return Result(command.returncode, stdout, stderr.decode("utf-8", "replace").strip())


def split_z(output: bytes) -> list[str]:
    """Splits the output of a command with -z into its fields."""
    return [os.fsdecode(field) for field in output.split(b"\0")[:-1]]


def version() -> tuple[int, ...]:
    """The version of the git that is found on the PATH; none where there is no git."""
    try:
        output = subprocess.run(["git", "version"], capture_output=True, text=True).stdout
    except OSError:
        return ()
    return tuple(map(int, re.findall(r"\d+", output)[:3]))


def _disk_full(command: str, stderr: str) -> errors.K2mpsError:
    return errors.K2mpsError(
        f"no space left while running git {command}",
        why=stderr,
        next_command="free some space, then run the same command again",
    )


@contextlib.contextmanager
def _started(args: Sequence[str], **how) -> Iterator[subprocess.Popen]:
    """A git process."""
    try:
        with process.started(["git", *args], grace=10, **how) as started:
            yield started
    except FileNotFoundError as error:
        if error.filename != "git":
            raise
        raise errors.RequirementMissingError(
            "there is no git on the PATH",
            why="k2mps uses git for all that it does with k2",
            next_command="install git, by apt install git, dnf install git or"
            " xcode-select --install; then run the same command again",
        ) from None


def _options(settings: Mapping[str, str]) -> list[str]:
    options = ["--no-pager"]
    for name, value in settings.items():
        options += ["-c", f"{name}={value}"]
    return options


def _communicate(process: subprocess.Popen, stdin: bytes) -> tuple[bytes, bytes]:
    """As `Popen.communicate`, which writes a long input in small pieces."""
    if len(stdin) <= 1 << 12:
        return process.communicate(stdin)
    pipe, process.stdin = process.stdin, None

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError), pipe:
            pipe.write(stdin)

    # Should a signal end this, the process goes, and the thread with it.
    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    output = process.communicate()
    feeder.join()
    return output


def _follow_progress(process: subprocess.Popen, task) -> str:
    """Feeds git's progress to `task`; returns the other lines of stderr."""

    others = []

    def handle(raw: bytes) -> None:
        line = raw.decode("utf-8", "replace")
        match = _PROGRESS.match(line)
        if match is None:
            others.append(line)
        elif match["total"]:
            task.update(int(match["done"]), int(match["total"]), match["title"])

    rest = b""
    with process.stderr as stream:
        while chunk := stream.read1(4096):
            *lines, rest = re.split(rb"[\r\n]+", rest + chunk)
            for line in lines:
                handle(line)
    handle(rest)
    process.wait()
    return redacted("\n".join(others).strip())


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
