"""Writes patches/ from the commits on branch k2-mps.

`export` is the inverse of `apply`.  `export` after `apply` does not change a byte of patches/, and
`apply` after `export` gives the same tree of k2.
"""

from collections import Counter
from collections.abc import Sequence

from k2mps.core import errors
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.stack import extraction, unfinished, upstream
from k2mps.stack.advice import checkout_of_branch, rebase_command
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Commit
from k2mps.stack.commits import commit_patches, pick
from k2mps.stack.extraction import Plan
from k2mps.stack.transaction import Transaction, begin


def export(
    project: Project, checkout: Checkout, *, prune: bool = False, onto: str = ""
) -> tuple[Plan, Pin]:
    """Writes patches/ from branch k2-mps, and moves the branch to the commits that `apply` makes.

    Args:
      prune: whether to delete the patches that the branch no longer has, and their new files.  A
        patch whose changes the new pin has is deleted anyway.
      onto: the upstream commit onto which git has rebased the branch, a result of
        `upstream.commit_of`; it becomes the pin.  Empty if the pin stays.
    Returns:
      The plan of the written files, and the pin.
    """
    with begin(project, checkout) as transaction:
        unfinished.check_at_rest(checkout)
        pin = transaction.pin
        if onto and onto != pin.commit:
            pin = upstream.pin_at(checkout, pin, onto)
        commits = exportable(transaction, pin)
        unfinished.check_at_rest(checkout, checkout.changed_files().edited)
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
        if dropped and not prune:
            lost = _lost_commits(transaction, dropped)
            tree = commits[-1].tree
            renamed = [commit for commit in lost if _has_changes(checkout, tree, commit)]
            missing = [commit for commit in lost if commit not in renamed]
            # The cherry-pick of the advice must overwrite no file of the user.
            transaction.check_in_the_way(transaction.head.commit, missing)
            checkout.check_merge(transaction.head.commit, *(commit.id for commit in missing))
            recovery = _recovery(checkout, pin, renamed, missing)
            option = f"--onto {onto[:12]} " if onto else ""
            raise errors.K2mpsError(
                f"the branch does not have {', '.join(dropped)}",
                why="the commits may have been dropped by mistake, or by a rebase that was killed"
                " and then continued; or a message has lost its line Patch-Filename",
                next_command=f"{recovery}k2mps export {option}--prune, which deletes them",
            )
        left_out = _left_out(transaction, pin, commits)
        transaction.write(plan, canonical(transaction, plan, commits, pin), "export")
        if left_out:
            checkout.reporter.warn(
                "the branch lacks changes of commits that it had before a rebase:"
                f" {', '.join(map(str, left_out))}; `{checkout.git_command} cherry-pick -m 1`"
                " brings back the commits that you still need"
            )
    return plan, pin


def _left_out(transaction: Transaction, pin: Pin, commits: Sequence[Commit]) -> list[Commit]:
    """Returns the user's commits that the branch had before a rebase, and whose changes it lacks.

    If a rebase is killed and then continued, git may skip the commit that it was picking.  A commit
    can also be here because a later commit has changed the same lines.

    Args:
      commits: the branch's commits on the pin.
    """
    checkout = transaction.checkout
    tree = commits[-1].tree
    old_pin = transaction.pin.commit
    present = (pin.commit, old_pin, *upstream.rebase_bases(checkout, old_pin))
    count_now = Counter(map(_origin, commits))
    left_out: dict[tuple, Commit] = {}
    for tip in upstream.before_rebases(checkout):
        # git leaves out the commits with the same patch-id as a commit of the branch.
        unmatched = checkout.commits(
            "--cherry-pick", "--right-only", f"{commits[-1].id}...{tip}", "--not", *present
        )
        count_before = Counter(map(_origin, checkout.commits(tip, "--not", *present)))
        for commit in unmatched:
            origin = _origin(commit)
            is_missing = count_before[origin] > count_now[origin]
            # A commit of a patch is dropped with the patch.  If the commit was reworded or
            # squashed, the branch still has its changes.
            is_of_user = not extraction.name_of(commit)
            if is_missing and is_of_user and not _has_changes(checkout, tree, commit):
                left_out.setdefault((origin, commit.tree), commit)
    return list(left_out.values())


def _has_changes(checkout: Checkout, tree: str, commit: Commit) -> bool:
    """Whether a tree has the changes of a commit: a cherry-pick of the commit changes nothing."""
    picked = pick(checkout.objects, commit, tree)
    return picked.tree == tree and not picked.conflicts


def _origin(commit: Commit) -> tuple[str, str, str]:
    """Returns what a commit keeps when it is rebased, whatever the conflicts."""
    return commit.author, commit.when, commit.subject


def _lost_commits(transaction: Transaction, dropped: Sequence[str]) -> list[Commit]:
    """Returns the commits of the applied series whose patches are among the files `dropped`.

    The result is empty if the branch only lacks new files of its patches.
    """
    tip = transaction.applied.tip if transaction.applied else transaction.tip
    commits = transaction.checkout.commits(f"{transaction.pin.commit}..{tip}")
    return [commit for commit in commits if f"patches/{extraction.name_of(commit)}" in dropped]


def _recovery(
    checkout: Checkout, pin: Pin, renamed: Sequence[Commit], missing: Sequence[Commit]
) -> str:
    """Returns the advice how to bring back patches; empty if there are none.

    Args:
      renamed: the commits of those patches whose changes the branch has, without the patch's name.
      missing: the other commits of those patches.
    """
    advice = []
    if renamed:
        rebase = rebase_command(checkout, pin.commit, *(commit.id for commit in renamed))
        lines = ", ".join(f"Patch-Filename: {extraction.name_of(commit)}" for commit in renamed)
        advice.append(
            f"{rebase} -i {pin.commit[:12]}, to end the message of the commit that has the patch's"
            f" changes with {lines}"
        )
    if missing:
        ids = " ".join(commit.id[:12] for commit in missing)
        advice.append(
            f"{checkout.git_command} cherry-pick {ids}, which brings them back at the end of the"
            " series"
        )
    if not advice:
        return ""
    return f"{'; '.join(advice)}; then the same command again; or, if you mean to drop them, "


def _superseded(transaction: Transaction, pin: Pin, removed: Sequence[str]) -> set[str]:
    """Returns the files of the patches, among the files `removed`, whose changes a new pin has."""
    checkout = transaction.checkout
    files: set[str] = set()
    if not removed or pin.commit == transaction.pin.commit or not transaction.applied:
        return files
    tree = checkout.tree_of(pin.commit)
    for commit in checkout.commits(f"{transaction.pin.commit}..{transaction.applied.tip}"):
        path = f"patches/{extraction.name_of(commit)}"
        if path in removed and _has_changes(checkout, tree, commit):
            changes = checkout.changes_of([commit])[commit.id]
            files.add(path)
            files |= {f"patches/files/{change.path}" for change in changes}
            checkout.reporter.info(f"k2 has the changes of {path} at {pin.commit[:12]}")
    return files


def exportable(transaction: Transaction, pin: Pin) -> list[Commit]:
    """Returns the commits of branch k2-mps on top of a pin.

    Raises:
      K2mpsError: this branch is not checked out, does not stand on the pin, or has a merge.
    """
    _check_branch(transaction)
    if pin == transaction.pin:
        transaction.check_pin()
    _check_base(transaction, pin)
    commits = transaction.checkout.commits(f"{pin.commit}..{transaction.head.tip}")
    _check_linear(transaction.checkout, pin, commits)
    return commits


def _check_branch(transaction: Transaction) -> None:
    """Raises an error if branch k2-mps is not checked out."""
    checkout, head = transaction.checkout, transaction.head
    if head.branch == BRANCH_REF:
        return
    transaction.check_head()
    advice = "k2mps apply"
    if head.tip and (head.branch or transaction.user_commits()):
        transaction.check_in_the_way(head.tip)
        advice = checkout_of_branch(checkout)
    raise errors.K2mpsError(
        f"{checkout.directory} is not on branch {BRANCH}",
        why="patches are made from the commits on that branch",
        next_command=advice,
    )


def _check_base(transaction: Transaction, pin: Pin) -> None:
    """Raises an error if branch k2-mps does not stand on the pin."""
    checkout, head = transaction.checkout, transaction.head
    base, old_pin = transaction.base, transaction.pin.commit
    if base == pin.commit:
        return
    # If git has rebased the branch, upstream's own commits are between the old pin and `base`.
    is_on_pin = checkout.is_ancestor(pin.commit, head.tip)
    if is_on_pin and not (base and checkout.is_ancestor(pin.commit, base)):
        return
    advice = "k2mps apply"
    if pin.commit != old_pin:
        is_rebased = base not in ("", old_pin)
        first = f"k2mps export --onto {base[:12]}, then " if is_rebased else ""
        advice = f"{first}k2mps rebase --onto {pin.commit[:12]}"
    elif base:
        rebase = f"{rebase_command(checkout, old_pin, head.tip)} --force-rebase {old_pin[:12]}"
        advice = f"k2mps export --onto {base[:12]}; or, if upstream lacks that commit, {rebase},"
        advice += " then the same command again"
    raise errors.K2mpsError(
        f"branch {BRANCH} of {checkout.directory} does not start from k2's commit"
        f" {pin.commit[:12]}",
        why=f"it starts from {base[:12]}" if base else "",
        next_command=advice,
    )


def _check_linear(checkout: Checkout, pin: Pin, commits: Sequence[Commit]) -> None:
    """Raises an error if one of the branch's commits on the pin is a merge."""
    merge = next((commit for commit in commits if len(commit.parents) > 1), None)
    if merge is None:
        return
    rebase = rebase_command(checkout, pin.commit, *merge.parents)
    advice = (
        f"{rebase} {pin.commit[:12]}, which makes it linear, but drops edits of the merge itself"
    )
    upstream_commits = upstream.below_series(checkout, pin.commit, merge.parents[1])
    if upstream_commits:
        onto = upstream_commits[-1][:12]
        advice = f"{rebase} {onto} {BRANCH}, then k2mps export --onto {onto}"
    raise errors.K2mpsError(
        f"commit {merge} is a merge",
        why="the history of a series must be linear",
        next_command=advice,
    )


def canonical(transaction: Transaction, plan: Plan, commits: Sequence[Commit], pin: Pin) -> str:
    """Makes the commits of a plan as `apply` does, and returns the id of the last one.

    An error is raised if a patch of the plan does not apply, or if the result differs from the
    branch.

    Args:
      commits: the branch's commits on the pin, from which the plan was made.
    """
    checkout = transaction.checkout
    patches = plan.series.patches
    start = 0  # how many of the first commits stay as they are
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
            next_command=f"{rebase_command(checkout, pin.commit, tip)} -i {pin.commit[:12]}, and"
            " change them",
        )
    return tip
