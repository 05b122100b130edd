"""Writes patches/ from the commits on branch k2-mps.

`export` is the inverse of `apply`.  `export` after `apply` does not change a byte of patches/, and
`apply` after `export` gives the same tree of k2.
"""

from collections.abc import Sequence

from k2mps.core import errors
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.stack import extraction, upstream
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Commit
from k2mps.stack.commits import commit_patches, pick
from k2mps.stack.extraction import Plan
from k2mps.stack.transaction import Transaction, begin


def export(
    project: Project, checkout: Checkout, *, prune: bool = False, onto: str = ""
) -> tuple[Plan, Pin]:
    """Writes patches/ from branch k2-mps, and moves the branch to the commits that `apply` makes.

    Args:
      prune: whether to delete the patches that the branch no longer has, and their new files, and
        to leave out the commits that a rebase has dropped.  A patch whose changes the new pin has
        is deleted anyway.
      onto: the upstream commit onto which git has rebased the branch, a result of
        `upstream.commit_of`; it becomes the pin.  Empty if the pin stays.
    Returns:
      The plan of the written files, and the pin.
    """
    with begin(project, checkout) as transaction:
        checkout.check_at_rest(checkout.changed_files().edited)
        pin = transaction.pin
        if onto and onto != pin.commit:
            pin = upstream.pin_at(checkout, pin, onto)
        commits = exportable(transaction, pin)
        if not commits:
            raise errors.K2mpsError(
                f"branch {BRANCH} has no commits on top of the pin",
                why="an export would delete every patch",
                next_command="k2mps apply",
            )
        plan = transaction.plan(commits, pin if onto else None)
        transaction.check_files(plan, "export")
        superseded = _superseded(transaction, pin, plan.removed)
        dropped = [path for path in plan.removed if path not in superseded]
        lost = _lost(transaction, pin, commits, dropped)
        missing = [*dropped, *(str(commit) for commit in lost if not extraction.name_of(commit))]
        if missing and not prune:
            raise errors.K2mpsError(
                f"the branch does not have {', '.join(missing)}",
                why="the commits may have been dropped by mistake, or by a rebase that was killed"
                " and then continued; or a message has lost its line Patch-Filename",
                next_command=f"{_recovery(checkout, lost)}k2mps export"
                f" {f'--onto {onto[:12]} ' if onto else ''}--prune, which drops them",
            )
        transaction.write(plan, canonical(transaction, plan, commits, pin), "export")
    return plan, pin


def _lost(
    transaction: Transaction, pin: Pin, commits: Sequence[Commit], dropped: Sequence[str]
) -> list[Commit]:
    """Returns the commits that the branch had at the last export, or before a rebase, and lacks.

    If a rebase is killed and then continued, git may skip the commit that it was picking.

    Args:
      commits: the branch's commits on the pin.
      dropped: the files of patches/ that the branch lacks.
    """
    checkout, tree = transaction.checkout, commits[-1].tree
    old = upstream.before_rebases(checkout)
    if dropped:
        old.append(transaction.applied.tip if transaction.applied else transaction.tip())
    if not old:
        return []
    present = (commits[-1].id, pin.commit, transaction.pin.commit, *upstream.rebase_bases(checkout))
    found, lost = {_origin(commit) for commit in commits}, {}
    for commit in checkout.commits(*old, "--not", *present):
        name = extraction.name_of(commit)
        if name:
            if f"patches/{name}" in dropped:
                lost[name] = commit
        # If the commit was reworded or squashed, the branch still has its changes.
        elif _origin(commit) not in found and pick(checkout.objects, commit, tree) != (tree, []):
            lost[_origin(commit)] = commit
    return [*lost.values()]


def _origin(commit: Commit) -> tuple[str, str, str]:
    """Returns what a commit keeps when it is rebased, whatever the conflicts."""
    return commit.author, commit.when, commit.subject


def _recovery(checkout: Checkout, lost: Sequence[Commit]) -> str:
    """Returns the advice how to bring back commits; empty if a commit only lacks new files."""
    if not lost:
        return ""
    ids = " ".join(commit.id[:12] for commit in lost)
    return (
        f"{checkout.git_command} cherry-pick {ids}, which brings them back at the end of the"
        " series; then the same command again; or, if you mean to drop them, "
    )


def _superseded(transaction: Transaction, pin: Pin, removed: Sequence[str]) -> set[str]:
    """Returns the files of the patches, among the files `removed`, whose changes a new pin has.

    The merge of such a patch with the new pin changes nothing.
    """
    checkout, files = transaction.checkout, set()
    if not removed or pin.commit == transaction.pin.commit or not transaction.applied:
        return files
    tree = checkout.tree_of(pin.commit)
    for commit in checkout.commits(f"{transaction.pin.commit}..{transaction.applied.tip}"):
        path = f"patches/{extraction.name_of(commit)}"
        if path in removed and pick(checkout.objects, commit, tree) == (tree, []):
            changes = checkout.changes_of([commit])[commit.id]
            files |= {path, *(f"patches/files/{change.path}" for change in changes)}
            checkout.reporter.info(f"k2 has the changes of {path} at {pin.commit[:12]}")
    return files


def exportable(transaction: Transaction, pin: Pin) -> list[Commit]:
    """Returns the commits of branch k2-mps on top of a pin.

    Raises:
      K2mpsError: this branch is not checked out, does not stand on the pin, or has a merge.
    """
    checkout, head = transaction.checkout, transaction.head
    git_command = checkout.git_command
    if head.branch != BRANCH_REF:
        back = f"{git_command} checkout {BRANCH}"
        if not head.tip:
            back = "k2mps apply, then make your change there"
        elif not head.branch and checkout.commits("-1", head.commit)[0].ours:
            # A killed run has not moved the branch yet, or the user looks at a patch's commit.
            back = back if transaction.user_commits() else "k2mps apply"
        elif not (head.branch or checkout.is_ancestor(head.commit, head.tip)):
            # HEAD is detached: perhaps no branch leads to its commits.
            back = f"{git_command} branch mine; {back}; {git_command} merge --ff-only mine"
        raise errors.K2mpsError(
            f"{checkout.directory} is not on branch {BRANCH}",
            why="patches are made from the commits on that branch",
            next_command=back,
        )
    base, old = transaction.base, transaction.pin.commit
    # If git has rebased the branch, upstream's own commits are between the old pin and `base`.
    if base != pin.commit and (
        not checkout.is_ancestor(pin.commit, head.tip)
        or (base and checkout.is_ancestor(pin.commit, base))
    ):
        advice = "k2mps apply"
        if base:
            again = f"{git_command} rebase --force-rebase {old[:12]}, then the same command again"
            advice = f"k2mps export --onto {base[:12]}; or, if upstream lacks that commit, {again}"
        if pin.commit != old:
            rebase = f"rebase --onto {pin.commit[:12]} {(base or old)[:12]} {BRANCH}"
            advice = f"{git_command} {rebase}, then the same command again"
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} does not start from k2's commit"
            f" {pin.commit[:12]}",
            why=f"it starts from {base[:12]}" if base else "",
            next_command=advice,
        )
    commits = checkout.commits(f"{pin.commit}..{head.tip}")
    merge = next((commit for commit in commits if len(commit.parents) > 1), None)
    if merge:
        others = upstream.below_series(checkout, pin.commit, merge.parents[1])
        advice = f"{git_command} rebase {pin.commit[:12]}, which makes it linear"
        if others:
            new = others[-1][:12]
            advice = f"{git_command} rebase {new} {BRANCH}, then k2mps export --onto {new}"
        raise errors.K2mpsError(
            f"commit {merge} is a merge",
            why="the history of a series must be linear",
            next_command=advice,
        )
    return commits


def canonical(transaction: Transaction, plan: Plan, commits: Sequence[Commit], pin: Pin) -> str:
    """Makes the commits of a plan as `apply` does, and returns the id of the last one.

    An error is raised if a patch of the plan does not apply, or if the result differs from the
    branch.

    Args:
      commits: the branch's commits on the pin, from which the plan was made.
    """
    start, patches, checkout = 0, plan.series.patches, transaction.checkout
    for patch, commit in zip(patches, commits):
        if not commit.ours or commit.message != patch.commit_message():
            break
        start += 1
    if start == len(commits):
        return commits[-1].id
    base = commits[start - 1].id if start else pin.commit
    tip = commit_patches(checkout, pin, base, patches[start:], plan.series)
    if checkout.tree_of(tip) != commits[-1].tree:
        raise errors.K2mpsError(
            f"the commits from {commits[start].subject!r} on cannot be written as patches",
            why="the patches give other files than the commits",
            next_command=f"{checkout.git_command} rebase -i, and change them",
        )
    return tip
