"""Moving the files of a checkout: all of them, or none.

git checks out the commit, in a session of its own, so that a Ctrl-C does not reach it.  A ref names
the commit meanwhile.  After an error, or a kill, that ref tells which files git may have changed:
`settle` restores those, and no others.
"""

import re

from k2mps.core import errors, interrupts
from k2mps.core.git import quoted
from k2mps.stack.checkout import BRANCH, Checkout

_MOVING = "refs/worktree/k2mps/moving"


def move(checkout: Checkout, commit: str, head: str = BRANCH) -> list[str]:
    """Checks out a commit, on a branch that it becomes the commit of; detached where `head` is
    empty.

    The caller has checked that nothing is edited.  Files that git does not track stay.

    Returns:
      The paths that were written or removed.
    """
    paths = [change.path for change in checkout.changes("HEAD", commit)]
    where = ("-B", head) if head else ("--detach",)
    with interrupts.deferred():
        checkout.git.bytes("update-ref", _MOVING, commit)
        try:
            # "--" tells that a commit is meant, not a file of that name.
            command = ("checkout", "--quiet", "--no-overwrite-ignore", *where, commit, "--")
            result = checkout.git.run(*command, work_tree=True)
            refused = result.status != 0 and _refused(checkout, result.stderr)
            if result.status != 0 and not refused:
                raise checkout.git.failure(command, result)
        except errors.BusyError:
            checkout.git.bytes("update-ref", "-d", _MOVING)
            raise
        except BaseException:
            settle(checkout)
            raise
        checkout.git.bytes("update-ref", "-d", _MOVING)
        if refused:
            raise refused
    return paths


def is_pending(checkout: Checkout) -> bool:
    """Whether a killed run may have left files half moved."""
    return checkout.commit_of(_MOVING) is not None


def settle(checkout: Checkout) -> bool:
    """Restores the files that a killed or failed `move` has left; whether there was one."""
    target = checkout.commit_of(_MOVING)
    if not target:
        return False
    lock = checkout.git_dir / "index.lock"
    if lock.exists():
        raise errors.BusyError(
            f"{lock} exists",
            why="an earlier run was killed while git changed the files, or git still does",
            next_command="if no git is running, delete that file, then run the same command again",
        )
    changes = checkout.changes("HEAD", target)
    paths = [change.path for change in changes]
    before, after = checkout.files("HEAD", paths), checkout.files(target, paths)
    # git may have written its new index already.
    checkout.git.bytes("reset", "--quiet", work_tree=True)
    restored = []
    for path in paths:
        place = checkout.directory / path
        data = place.read_bytes() if place.is_file() else b""
        old, new = (side[path].content if path in side else None for side in (before, after))
        versions = (data, data.replace(b"\r\n", b"\n"))
        if (place.is_file() or old is not None) and old not in versions:
            # git writes a file from its beginning; anything else is the user's edit.
            if any((new or b"").startswith(one) for one in versions):
                place.unlink(missing_ok=True)
                restored += [path] if old is not None else []
    if restored:
        checkout.git.bytes("checkout", "HEAD", "--", *restored, work_tree=True)
    for path in set(paths) - set(before):
        _remove_empty_parents(checkout, path)
    checkout.git.bytes("update-ref", "-d", _MOVING)
    return True


def _remove_empty_parents(checkout: Checkout, path: str) -> None:
    folder = (checkout.directory / path).parent
    while folder != checkout.directory:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _refused(checkout: Checkout, stderr: str) -> errors.K2mpsError | None:
    """git's refusal to change anything, which lists the files in the way, each after a tab; None
    for another message."""
    files = re.findall(r"^\s+(.*)$", stderr, re.MULTILINE)
    place = checkout.directory / (files[0].rstrip("/") if files else "")
    if "Your local changes" in stderr:
        return errors.K2mpsError(
            f"{place} was edited meanwhile",
            next_command="commit or stash that, then run the same command again",
        )
    if not files or not re.search("would be (overwritten|lost|removed)|lose untracked", stderr):
        return None
    return errors.K2mpsError(
        f"{place} stands where the series has a file",
        why=f"git does not track {errors.some(files)}, so replacing would lose it",
        next_command=f"move {quoted(place)} away, then run the same command again",
    )
