"""Runs git clone and git fetch, and shows the progress of a clone."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from k2mps.core import errors, process
from k2mps.core.git import check_resources, redacted, settings
from k2mps.core.progress import Reporter, Update

# The settings of clone and fetch.  They do not change how git reaches upstream: the user's
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
    """Returns the commits of a remote repository's HEAD, branches and tags, by the refs' names.

    Args:
      directory: the directory in which git runs.
    Raises:
      UnreachableError: the repository cannot be reached.
    """
    command = ("git", *settings(_NETWORK), "ls-remote", "--", url, "HEAD", "refs/heads/*")
    command += ("refs/tags/*",)
    reporter.command([*map(redacted, command)])
    environment = {**os.environ, "LANGUAGE": "C", "LC_ALL": "C"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with process.started(
        command, cwd=directory, env=environment, **pipes, text=True, errors="replace"
    ) as running:
        output, stderr = running.communicate()
    if running.returncode < 0:
        raise errors.ended_by_signal("git ls-remote", running.returncode)
    if running.returncode:
        raise errors.UnreachableError(
            f"{redacted(url)} cannot be reached",
            why=redacted(stderr.strip()),
            next_command="check the network, then run the same command again",
        )
    lines = (line.split("\t") for line in output.splitlines())
    # After an annotated tag "x", git lists the tag's commit as "x^{}".
    return {name.removesuffix("^{}"): id_ for id_, name in lines}


def network(
    directory: Path, title: str, failure: str, *args: str, reporter: Reporter = Reporter()
) -> None:
    """Runs git clone or git fetch with the user's configuration.

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
            stderr=subprocess.PIPE,
            text=True,  # This mode also splits lines at carriage returns, which end progress lines.
            errors="replace",
        ) as running,
    ):
        lines = _messages(running.stderr, update) if options else [*running.stderr]
        status = running.wait()
    if status < 0:
        raise errors.ended_by_signal(f"git {command}", status)
    stderr = redacted("\n".join(filter(None, map(str.strip, lines))))
    if status != 0:
        check_resources(command, stderr, directory)
        lacks = "not our ref" in stderr or "remote ref" in stderr
        raise (errors.K2mpsError if lacks else errors.UnreachableError)(
            failure,
            why=stderr,
            next_command="check the network, and url and commit in upstream.toml; or give a clone"
            " of k2 that you have: --k2 DIRECTORY; then run the same command again",
        )


def _messages(lines: Iterable[str], update: Update) -> list[str]:
    """Passes git's progress on to `update`, and returns git's other messages."""
    import git  # GitPython takes time to import, and only a clone takes more.

    class Progress(git.RemoteProgress):
        def update(self, op_code, cur_count, max_count=None, message="") -> None:
            update(int(cur_count), int(max_count or 0), self._cur_line.partition(":")[0])

    progress = Progress()
    handle = progress.new_message_handler()
    for line in filter(str.strip, lines):
        handle(line.rstrip("\n"))
    return [*progress.other_lines, *progress.error_lines]
