"""Applies the series.  The commits get the same ids on every machine.

First the tool makes a commit of each patch, which changes no file and no ref (see commits.py).
Then git switches the checkout to the last commit.
"""

import contextlib

from k2mps.core import errors
from k2mps.core.project import Project
from k2mps.stack import unfinished
from k2mps.stack.advice import rebase_command
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout
from k2mps.stack.refusals import PUT_ASIDE
from k2mps.stack.transaction import Transaction, begin


def apply(project: Project, checkout: Checkout) -> tuple[str, list[str] | None]:
    """Applies the series to a checkout, which does not change if this function raises an error.

    Warns if `export` would write another text of the series.

    Returns:
      The commit that is checked out; and the paths that differ from the commit that was checked out
      before, or None if the series was applied already.
    Raises:
      ConflictError: the series does not apply.
      BusyError: another run of the tool uses the checkout.
    """
    with begin(project, checkout) as transaction:
        tip, head = transaction.tip, transaction.head
        applied = _is_applied(transaction, tip)
        if applied:
            transaction.record(tip)  # The user's commits on top stay checked out.
        else:
            _check_commits(transaction, tip)
            transaction.switch(tip)
            if head.tip and not checkout.is_ancestor(head.tip, tip):
                # A patch that has left patches/ may have been the only copy of a commit.
                checkout.reporter.info(f"branch {BRANCH} was at {head.tip[:12]} before")
        if not transaction.tip_is_known:
            _warn_of_old_text(transaction, tip)
        if applied:
            return head.commit, None
        return tip, checkout.changed_paths(head.commit, tip)


def _warn_of_old_text(transaction: Transaction, tip: str) -> None:
    """Warns if `export` would write other files than patches/ has for the commits up to `tip`.

    After an edit by hand, a patch may name blobs which only this checkout has.  Then git can merge
    the patch here, but not in a new clone.
    """
    commits = transaction.checkout.commits(f"{transaction.pin.commit}..{tip}")
    with contextlib.suppress(errors.K2mpsError):  # The user sees this error at the next export.
        plan = transaction.plan(commits)
        if plan.changed or plan.removed:
            transaction.checkout.reporter.warn(
                "patches/ has blob ids or line numbers of other versions of the files, in"
                f" {errors.some([*plan.changed, *plan.removed])}; a new clone may refuse these"
                " patches; next: k2mps export"
            )


def _is_applied(transaction: Transaction, tip: str) -> bool:
    """Whether branch k2-mps is checked out and has the series up to `tip`, perhaps with the user's
    commits on top."""
    head, old = transaction.head, transaction.applied
    is_ancestor = transaction.checkout.is_ancestor
    if head.branch != BRANCH_REF or not is_ancestor(tip, head.commit):
        return False
    if head.commit == tip or not old:
        return head.commit == tip or bool(transaction.user_commits(tip))
    # The branch may also contain `old.tip`, the last commit of the series that was applied before.
    # Then the commits on top of `tip` may belong to patches that were deleted from patches/.
    return old.tip == tip or not is_ancestor(old.tip, head.commit)


def _check_commits(transaction: Transaction, tip: str) -> None:
    """Raises an error if no branch would lead to some commits of the user after the switch."""
    checkout, head = transaction.checkout, transaction.head
    unfinished.check_at_rest(checkout)
    # The `git rebase` of the advice below would leave HEAD, and overwrite ignored files.
    transaction.check_head()
    transaction.check_in_the_way(tip)
    users = transaction.user_commits(tip)
    if users:
        shown = errors.some([str(commit) for commit in users])
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} has commits that patches/ lacks",
            why=f"they are yours, or an older series': {shown}",
            next_command=_advice(transaction, tip),
        )
    worktree = "" if head.branch == BRANCH_REF else checkout.other_user(BRANCH_REF)
    if worktree:
        raise errors.K2mpsError(
            f"branch {BRANCH} is checked out in {worktree}",
            why="two worktrees cannot share a branch, and git has one of them there, perhaps for a"
            " rebase or bisection",
            next_command="use that worktree, or another clone of k2",
        )


def _advice(transaction: Transaction, tip: str) -> str:
    """Returns the commands for a user whose branch k2-mps has commits that patches/ lacks."""
    checkout, old, base = transaction.checkout, transaction.applied, transaction.base
    if transaction.changed and checkout.is_ancestor(old.tip, transaction.head.tip):
        # transaction.tip has made the commits of the changed patches/, so git can rebase.
        rebase = rebase_command(checkout, old.tip, transaction.head.tip, tip)
        return f"{rebase} --onto {tip} {old.tip[:12]} {BRANCH}, then k2mps export"
    onto = "" if base == transaction.pin.commit else f" --onto {base[:12] or 'REV'}"
    if transaction.changed and onto and base:
        back = "commit that, bring the change back, and k2mps apply"
        return f"{PUT_ASIDE}; then k2mps export{onto}, {back}"
    leave = f"{checkout.git_command} branch -m {BRANCH} my-{BRANCH}-{transaction.head.tip[:12]}"
    if transaction.changed or not old:
        # k2mps export would refuse to overwrite files of patches/ that the branch lacks.
        return f"{leave}, which leaves them there; then k2mps apply"
    return f"k2mps export{onto} makes patches of them; {leave} leaves them where they are"
