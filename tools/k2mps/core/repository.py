"""Runs the commands of git that need the network, and shows the progress of a clone."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from k2mps.core import errors, process
from k2mps.core.git import check_resources, redacted, settings
from k2mps.core.progress import Reporter, Update

# The settings of these commands.  They do not change how git reaches upstream: the user's
# configuration decides that, with insteadOf, proxies and credentials.
_NETWORK = {
    "core.hooksPath": os.devnull,
    # git keeps the pack that it gets.  If git unpacked it, a full disk or a kill would leave a
    # commit without its files, and the tool would not fetch the commit again.
    "fetch.unpackLimit": "1",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
}


def remote_refs(directory: Path, url: str, reporter: Reporter = Reporter()) -> dict[str, str]:
    """Returns the commits of a remote repository's branches and tags, by the refs' names.

    Args:
      directory: the directory in which git runs.
    Raises:
      UnreachableError: the repository cannot be reached.
    """
    command = ("ls-remote", "--", url, "refs/heads/*", "refs/tags/*")
    failure = f"{redacted(url)} cannot be reached"
    output = network(directory, "asking upstream", failure, *command, reporter=reporter)
    commits = {}
    for line in output.splitlines():
        id_, name = line.split("\t")
        # After an annotated tag "x", git lists the tag's commit as "x^{}".
        commits[name.removesuffix("^{}")] = id_
    return commits


def network(
    directory: Path, title: str, failure: str, *args: str, reporter: Reporter = Reporter()
) -> str:
    """Runs git clone, fetch or ls-remote with the user's configuration; returns the output.

    The command keeps the terminal, because ssh or a credential helper may have to ask the user.

    Args:
      directory: the directory in which the command runs.
      title: the name of the work in the progress display.
      failure: the first line of an error.
      args: the command without "git".
    Raises:
      UnreachableError: the command failed, perhaps because the network is down.
      K2mpsError: upstream answered that it lacks the commit; or the disk is full.
    """
    command, *rest = args
    options = ["--progress"] if command == "clone" else []
    reporter.command(["git", *map(redacted, args)])
    with (
        reporter.task(title) as update,
        process.started(
            ["git", "--no-pager", *settings(_NETWORK), command, *options, *rest],
            cwd=directory,
            env={**os.environ, "LANGUAGE": "C", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,  # This mode also splits lines at carriage returns, which end progress lines.
            errors="replace",
        ) as running,
    ):
        # A clone has no output but its messages.
        messages = _shown(running.stderr, update) if command == "clone" else ""
        output, stderr = running.communicate()
    if running.returncode < 0:
        raise errors.ended_by_signal(f"git {command}", running.returncode)
    if running.returncode:
        stderr = messages or stderr
        check_resources(command, stderr, directory)
        lacks = "not our ref" in stderr or "remote ref" in stderr
        kind = errors.K2mpsError if lacks else errors.UnreachableError
        raise kind(
            failure,
            why=redacted(stderr.strip()),
            next_command="check the network, and url and commit in upstream.toml; or give a clone"
            " of k2 that you have: --k2 DIRECTORY; then run the same command again",
        )
    return output


def _shown(lines: Iterable[str], update: Update) -> str:
    """Passes git's progress on to `update`, and returns git's other messages."""
    import git  # GitPython takes time to import, and only a clone takes more.

    class Progress(git.RemoteProgress):
        def update(self, op_code, cur_count, max_count=None, message="") -> None:
            step, _, _ = self._cur_line.removeprefix("remote: ").partition(":")
            update(int(cur_count), int(max_count or 0), step)

    progress = Progress()
    handle = progress.new_message_handler()
    for line in filter(str.strip, lines):
        handle(line.rstrip("\n"))
    return "\n".join([*progress.other_lines, *progress.error_lines])
