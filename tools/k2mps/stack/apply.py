"""Applying the series: the same commits on every machine, or no change.

First every patch becomes a commit, which changes no file and no ref (see
commits.py).  Then the checkout moves to the last one in one transaction.
"""

from k2mps.core import errors, pins
from k2mps.core.pins import Upstream
from k2mps.core.project import Project
from k2mps.series.patch_folder import Series, load
from k2mps.stack import operations, status
from k2mps.stack.checkout import BASE_REF, BRANCH, BRANCH_REF, LOG_REF, Checkout, Move
from k2mps.stack.commits import commit_series
from k2mps.stack.status import State, Status


def apply(project: Project, upstream: Upstream, checkout: Checkout) -> tuple[str, list[str] | None]:
    """Applies the series to a checkout; an error leaves it as it was.

    Returns:
      The commit that is checked out; and the paths that were written or removed, or None where
      the checkout was there before.
    Raises:
      ConflictError: the series does not apply.
      BusyError: another run holds the checkout.
    """
    found = locked(project, upstream)
    with checkout.exclusive():
        checkout.recover()
        made = commit_series(checkout, upstream.pin, found)
        now = status.of_checkout(project, upstream, checkout, made)
        if now.state is State.APPLIED:
            return now.head.commit, None
        refs = checkout.refs((BRANCH_REF, BASE_REF, LOG_REF))
        _check_movable(upstream, checkout, now, refs[BRANCH_REF])
        if made.tip == now.head.commit:
            return made.tip, None
        log = operations.record(project, checkout, "apply", BRANCH_REF, head=now.head, refs=refs)
        refs_after = {BRANCH_REF: made.tip, BASE_REF: made.tip, LOG_REF: log}
        move = Move(refs_after, made.tip, BRANCH_REF)
        return made.tip, checkout.move_to(move, "apply", now.head, refs)


def locked(project: Project, upstream: Upstream) -> Series:
    """patches/, which must be what upstream.toml locks."""
    found = load(project.patches)
    differences = pins.differences(upstream.lock, found.lock)
    if differences:
        raise errors.K2mpsError(
            "patches/ is not what upstream.toml locks",
            why="; ".join(differences),
            next_command="k2mps lock, if the change is meant; else git"
            " checkout patches upstream.toml",
        )
    return found


def _check_movable(upstream: Upstream, checkout: Checkout, now: Status, tip: str | None) -> None:
    """Refuses a checkout with work that moving it would hide."""
    where = checkout.directory
    checkout.check_at_rest(bool(now.edited_files))
    if now.user_commits:
        raise errors.K2mpsError(
            f"{where} has commits of yours on top of k2",
            why="; ".join(now.user_commits),
            next_command=f"k2mps export, to make patches of them; or git -C {where} checkout"
            f" {upstream.pin.commit}, to leave them where they are",
        )
    # The tool may move its own clone from any commit of upstream, such as an earlier pin.
    remotes = ("for-each-ref", "--count=1", "--contains", "HEAD", "refs/remotes")
    if now.state is State.OTHER_COMMIT and not (checkout.own and checkout.git.text(*remotes)):
        raise errors.K2mpsError(
            f"{where} is at commit {now.head.commit[:12]}, the series is for"
            f" {upstream.pin.commit[:12]} (k2 {upstream.pin.version})",
            next_command=f"git -C {where} checkout {upstream.pin.commit}",
        )
    elsewhere = checkout.other_worktree_on_branch()
    if elsewhere:
        raise errors.K2mpsError(
            f"branch {BRANCH} is checked out in {elsewhere}",
            why="two worktrees cannot share a branch",
            next_command="use that worktree, or a clone of its own",
        )
    users = checkout.unexported(upstream.pin.commit, tip) if tip else []
    if users:
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} has commits of yours",
            why=f"moving the branch would leave them without a name: {'; '.join(map(str, users))}",
            next_command=f"git -C {checkout.directory} branch -m {BRANCH}"
            f" my-{BRANCH}; or check the branch out and k2mps export",
        )
