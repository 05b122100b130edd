"""Moving a checkout to another commit: all of its files, or none.

git checks out the commit, in a session of its own, so that a Ctrl-C does not reach it.  Meanwhile
the project's plan has the `Move`.  After an error, or a kill, the move tells which files git may
have changed: `restore` restores those, and no others.
"""

import contextlib
import os
import re
from typing import NamedTuple

from k2mps.core import errors
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout

# What git says where a file is edited, or is not tracked and in the place of one of the commit.
_IN_THE_WAY = re.compile("would be (overwritten|lost|removed)|lose untracked|Your local changes")


class Move(NamedTuple):
    """Where a checkout goes."""

    commit: str  # what HEAD becomes
    head: str  # the full name of HEAD's branch; empty where it is detached
    branch: str  # the commit that branch k2-mps gets; empty where it is deleted
    # What becomes of the checkout's files: "files" makes them the commit's; "edits" lets them be,
    # as `commit` has their edits; "index" lets them be, and the index; "" moves no HEAD.
    how: str


def to(commit: str, how: str = "files") -> Move:
    """The move of branch k2-mps, which is checked out or becomes so, to a commit."""
    return Move(commit, BRANCH_REF, commit, how)


def move(checkout: Checkout, what: Move) -> list[str]:
    """Moves a checkout whose files are not edited, or keeps them.  Files that git does not track
    stay.

    Returns:
      The paths that were written or removed.
    """
    paths = []
    if what.how == "files":
        paths = checkout.changed_paths("HEAD", what.commit)
        _check_out(checkout, what)
    elif what.how:
        how = "--mixed" if what.how == "edits" else "--soft"
        checkout.git.bytes("reset", "--quiet", how, what.commit, work_tree=True)
    if (what.head, what.branch) != (BRANCH_REF, what.commit):
        arguments = (BRANCH_REF, what.branch) if what.branch else ("-d", BRANCH_REF)
        checkout.git.bytes("update-ref", *arguments)
    return paths


def _check_out(checkout: Checkout, what: Move) -> None:
    on_branch = what.head == BRANCH_REF
    where = ("-B", BRANCH) if on_branch else ("--detach",)
    # "--" tells that a commit is meant, not a file of that name.
    command = ("checkout", "--quiet", "--no-overwrite-ignore", *where, what.commit, "--")
    try:
        result = checkout.git.run(*command, work_tree=True)
    except errors.BusyError:
        raise
    except BaseException:
        restore(checkout, what.commit)
        raise
    if result.status:
        if _IN_THE_WAY.search(result.stderr):  # then git has changed nothing
            raise errors.K2mpsError(
                f"files of yours are in the way in {checkout.directory}",
                why=result.stderr,
                next_command="commit, stash or move them away, then run the same command again",
            )
        restore(checkout, what.commit)
        raise checkout.git.failure(command, result)
    # The user's branch is where it was; only HEAD left it.
    if what.head and not on_branch and checkout.commit_of(what.head) == what.commit:
        checkout.git.bytes("symbolic-ref", "HEAD", what.head)


def is_done(checkout: Checkout, what: Move) -> bool:
    """Whether a run that was killed during a move had completed the move."""
    head = checkout.head()
    return (head.commit, head.tip) == (what.commit, what.branch)


def restore(checkout: Checkout, target: str) -> None:
    """Restores the files that a killed or failed move to a commit has left."""
    paths = checkout.changed_paths("HEAD", target)
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
        with contextlib.suppress(OSError):
            os.removedirs((checkout.directory / path).parent)
