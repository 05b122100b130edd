"""Clone and fetch, whose progress GitPython reads; GitPython takes time to import."""

import os
import subprocess
from pathlib import Path

import git

from k2mps.core import errors, process
from k2mps.core.git import check_resources, redacted, settings
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
    with (
        reporter.task(title) as update,
        process.started(
            ["git", "--no-pager", *settings(_NETWORK), command, "--progress", *rest],
            cwd=directory,
            env={**os.environ, "LANGUAGE": "C", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,  # a line of progress ends with a carriage return
            errors="replace",
        ) as running,
    ):
        progress = _Progress(update)
        handle = progress.new_message_handler()
        for line in filter(str.strip, running.stderr):
            handle(line.rstrip("\n"))
        status = running.wait()
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
