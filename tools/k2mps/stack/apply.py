"""Applying the series: the same commits on every machine, or no change.

First every patch becomes a commit, which changes no file and no ref (see
commits.py).  Then git checks out the last one.
"""

import os
from collections.abc import Sequence

from k2mps.core import errors
from k2mps.core.git import quoted
from k2mps.core.pins import Pin, Upstream
from k2mps.core.project import Project
from k2mps.series.patch_folder import load
from k2mps.stack import moving, states, status
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Commit
from k2mps.stack.commits import commit_date, replay, series_tip
from k2mps.stack.states import States
from k2mps.stack.status import State, Status


def apply(project: Project, upstream: Upstream, checkout: Checkout) -> tuple[str, list[str] | None]:
    """Applies the series to a checkout; an error leaves it as it was.

    Commits of the user's that are not in patches/ are carried over, if patches/ has changed since
    it was applied.

    Returns:
      The commit that is checked out; and the paths that were written or removed, or None where
      the checkout was there before.
    Raises:
      DoesNotApplyError: the series does not apply.
      BusyError: another run holds the checkout.
    """
    with states.at_work(project, checkout) as known:
        pin = upstream.pin
        tip = series_tip(project, checkout, pin, load(project.patches), known)
        now = status.judge(pin, known, tip)
        if now.state is State.APPLIED:
            if not known.known():
                known.record("apply", synced=True)
            return tip, None
        mine = _check_movable(pin, known, now)
        top = _carried(checkout, pin, mine, tip) if mine else tip
        # Of the user's commits, only the base is in patches/.
        return top, known.carry_out("apply", move=moving.to(top), synced=not mine)


def _check_movable(pin: Pin, known: States, now: Status) -> list[Commit]:
    """Refuses a checkout with work that moving it would hide; the commits to carry over."""
    checkout, head = known.checkout, known.head
    where, last = checkout.directory, known.last_synced
    checkout.check_at_rest(bool(now.edited_files))
    changed = last and last.tree != known.tree
    if now.user_commits:
        if head.branch == BRANCH_REF and changed:
            return known.unexported(pin.commit, head.commit)
        raise errors.K2mpsError(
            f"{where} has commits of yours on top of k2",
            why="; ".join(now.user_commits),
            next_command=f"k2mps export, to make patches of them; or git -C {quoted(where)}"
            f" checkout {pin.commit}, to leave them where they are",
        )
    # The tool may move its own clone from any commit of upstream, such as an earlier pin.
    remotes = ("for-each-ref", "--count=1", "--contains", "HEAD", "refs/remotes")
    if now.state is State.OTHER_COMMIT and not (checkout.own and checkout.git.text(*remotes)):
        raise errors.K2mpsError(
            f"{where} is at commit {head.commit[:12]}, the series is for"
            f" {pin.commit[:12]} (k2 {pin.version})",
            next_command=f"git -C {quoted(where)} checkout {pin.commit}",
        )
    place = checkout.git.text("for-each-ref", "--format=%(worktreepath)", BRANCH_REF)
    if head.branch != BRANCH_REF and os.path.exists(place):
        raise errors.K2mpsError(
            f"branch {BRANCH} is checked out in {place}",
            why="two worktrees cannot share a branch",
            next_command="use that worktree, or a clone of its own",
        )
    users = head.tip and known.unexported(pin.commit, head.tip)
    if users:
        raise errors.K2mpsError(
            f"branch {BRANCH} of {where} has commits of yours",
            why=f"moving the branch would leave them without a name: {'; '.join(map(str, users))}",
            next_command=f"git -C {quoted(where)} branch -m {BRANCH}"
            f" my-{BRANCH}; or check the branch out and k2mps export",
        )
    return []


def _carried(checkout: Checkout, pin: Pin, mine: Sequence[Commit], tip: str) -> str:
    """The user's commits on the series as it is now."""
    try:
        return replay(checkout, commit_date(checkout, pin.commit), tip, mine, ours=False)
    except errors.K2mpsError as error:
        where = quoted(checkout.directory)
        raise errors.ConflictError(
            "your commits conflict with the new text of patches/",
            why=str(error),
            next_command=f"git -C {where} rebase --onto {tip} {mine[0].parents[0][:12]} {BRANCH},"
            " and resolve; then k2mps export --overwrite",
        ) from None
