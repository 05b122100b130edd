"""Clone and fetch, whose progress GitPython reads; GitPython takes time to import."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import git

from k2mps.core import errors
from k2mps.core.git import check_resources, missing, redacted, settings
from k2mps.core.progress import Reporter, Update

# The settings of clone and fetch: none of them changes how upstream is reached, which is the
# user's configuration: insteadOf, proxies, credentials.
_NETWORK = {
    "core.hooksPath": os.devnull,
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
}


class _Progress(git.RemoteProgress):
    """git's progress, for a display."""

    def __init__(self, shown: Update):
        super().__init__()
        self._shown = shown

    def update(self, op_code, cur_count, max_count=None, message="") -> None:
        stage = self._cur_line.partition(":")[0]
        self._shown(int(cur_count), int(max_count or 0), stage)


def network(
    directory: Path, title: str, failure: str, *args: str, reporter: Reporter = Reporter()
) -> None:
    """Runs clone or fetch, under the user's configuration.

    The command keeps the terminal, where ssh or a credential helper may have to ask something.

    Args:
      title: what the progress display calls the work.
      failure: what an error says first.
      args: the command; `--progress` is added here.
    Raises:
      UnreachableError: the command failed, and upstream does not say that it lacks the commit.
    """
    command, *rest = args
    reporter.command(["git", *map(redacted, args)])
    with reporter.task(title) as update:
        progress = _Progress(update)
        try:
            process = git.cmd.Git(directory).execute(
                ["git", "--no-pager", *settings(_NETWORK), command, "--progress", *rest],
                as_process=True,
                with_stdout=False,
            )
        except git.GitCommandNotFound:
            raise missing() from None
        running = process.proc
        try:
            _follow(running.stderr, progress.new_message_handler())
            status = running.wait()
        except BaseException:
            running.terminate()
            running.wait()
            raise
    stderr = redacted("\n".join([*progress.other_lines, *progress.error_lines]).strip())
    if status != 0:
        check_resources(command, stderr, directory)
        lacks = "not our ref" in stderr or "remote ref" in stderr
        raise (errors.K2mpsError if lacks else errors.UnreachableError)(
            failure,
            why=stderr,
            next_command="check the network, and url and commit in upstream.toml; or give a clone"
            " of k2 that you have: --k2 DIRECTORY; then run the same command again",
        )


def _follow(stream: BinaryIO, handle: Callable[[str], object]) -> None:
    """Passes each line on as it comes; git ends a line of progress with a carriage return.

    GitPython would do this in threads, which a signal does not end.
    """
    rest = b""
    while chunk := stream.read1(4096):
        *lines, rest = re.split(rb"[\r\n]+", rest + chunk)
        for line in filter(None, lines):
            handle(line.decode("utf-8", "replace"))
    if rest:
        handle(rest.decode("utf-8", "replace"))
