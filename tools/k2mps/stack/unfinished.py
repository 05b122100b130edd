"""Whether git has an unfinished command in a checkout, such as a rebase."""

import contextlib
import re
from collections.abc import Sequence

from k2mps.core import errors
from k2mps.stack.checkout import Checkout

# The name of a git command, by the file that the git directory has until the command is finished.
_IN_PROGRESS = {
    "rebase-merge": "rebase",
    "rebase-apply/applying": "am",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}

# A line of git's list of a rebase that makes a commit of another commit.
_PICK = re.compile("(p|pick|r|reword|e|edit|s|squash|f|fixup) ")


def rebase_was_killed(checkout: Checkout) -> bool:
    """Whether a rebase was killed, or is still running; False if git has stopped it.

    git takes a commit from its list before it picks the commit.  So after a kill,
    `git rebase --continue` may skip the commit.
    """
    folder = checkout.git_dir / "rebase-merge"
    if not folder.is_dir():
        return False
    # At a stop, REBASE_HEAD is the commit that git picked last, or is to pick again.
    last, following = "", ""
    with contextlib.suppress(FileNotFoundError):
        last = (folder / "done").read_text(errors="replace").splitlines()[-1]
        following = (folder / "git-rebase-todo").read_text(errors="replace").split("\n", 1)[0]
    stop = checkout.commit_of("REBASE_HEAD")
    is_pick = not last or _PICK.match(last)
    return bool(is_pick) and not (stop and (stop in last or stop in following))


def operation_in_progress(checkout: Checkout) -> str:
    """Returns the name of the git command that the user must finish; empty if there is none."""
    for name, command in _IN_PROGRESS.items():
        if (checkout.git_dir / name).exists():
            return command
    # After a `git commit` instead of --continue, only the list of further commits is left.
    with contextlib.suppress(FileNotFoundError):
        todo = (checkout.git_dir / "sequencer/todo").read_bytes()
        return "revert" if todo.startswith(b"revert") else "cherry-pick"
    return ""


def check_at_rest(
    checkout: Checkout, paths: Sequence[str] = (), what: str = "uncommitted edits"
) -> None:
    """Raises an error if a git command is unfinished, or if `paths` is not empty.

    Args:
      what: what the files at `paths` have.
    """
    operation = operation_in_progress(checkout)
    if operation or paths:
        fault = f"an unfinished {operation}" if operation else f"{what}: {errors.some(paths)}"
        raise errors.K2mpsError(
            f"{checkout.directory} has {fault}",
            # `git status` would say to continue a rebase that was killed.
            next_command="k2mps status, which says how to end that; then the same command again",
        )
