"""`k2mps status`: the state of a checkout and of patches/, and the command to run next.

The tool's ref (see applied.py) tells which version of patches/ was applied.
"""

import dataclasses
import enum
from collections.abc import Sequence

from k2mps.core import errors
from k2mps.core.pins import Upstream
from k2mps.core.project import Project
from k2mps.stack import unfinished
from k2mps.stack.advice import choice_of_version, undo_rebase
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Differences, Head
from k2mps.stack.transaction import Transaction
from k2mps.stack.upstream import rebase_target

# If the user's edits or commits are in the way, `k2mps apply` prints what to do with them.
APPLY = "k2mps apply"


class State(str, enum.Enum):
    ABSENT = "absent"
    PRISTINE = "pristine"
    APPLIED = "applied"
    OTHER_SERIES = "applied by another version of the series"
    EDITED = "edited"
    OTHER_COMMIT = "other commit"


@dataclasses.dataclass(frozen=True)
class Status:
    """The facts that `k2mps status` prints."""

    state: State  # the state of the checkout
    details: tuple[str, ...] = ()  # the reasons for the state, one line each
    next_command: str = ""  # the command to run next; empty if nothing is to be done
    head: Head | None = None  # the commit and branch; None without a checkout
    edited_files: tuple[str, ...] = ()  # tracked files that differ from HEAD
    user_commits: tuple[str, ...] = ()  # the user's commits on top of the pin, as "id subject"
    patch_changes: tuple[str, ...] = ()  # files of patches/ that changed since they were applied
    untracked_files: tuple[str, ...] = ()  # files that git neither tracks nor ignores


def of_checkout(project: Project, upstream: Upstream, checkout: Checkout | None) -> Status:
    """Returns the status of a checkout; None stands for a checkout that does not exist."""
    if checkout is None:
        return Status(State.ABSENT, next_command=APPLY)
    if not checkout.commit_of(upstream.pin.commit):
        pin = upstream.pin
        why = f"it does not have the pinned commit {pin.commit[:12]} (k2 {pin.version})"
        return Status(State.OTHER_COMMIT, (why,), APPLY, checkout.head())
    current = Transaction(project, checkout)
    differences = checkout.changed_files("normal")
    state, users, details = _where(current)
    if differences.edited and state is not State.OTHER_COMMIT:
        state = State.EDITED
    exchanged = checkout.exchanged(differences.edited)
    detail, advice = _operation(current)
    if detail:
        details.append(detail)
    details += _details_of_edits(differences, exchanged)
    is_done = state is State.APPLIED and not current.changed
    if not advice and not is_done:
        advice = _next_step(current, differences, users, exchanged)
    return Status(
        state,
        tuple(details),
        advice,
        current.head,
        edited_files=tuple(differences.edited),
        user_commits=tuple(users),
        patch_changes=tuple(current.changed),
        untracked_files=tuple(differences.untracked),
    )


def _operation(current: Transaction) -> tuple[str, str]:
    """Returns a line about git's unfinished command, and the commands that end it; both are empty
    if there is none."""
    checkout = current.checkout
    operation = unfinished.operation_in_progress(checkout)
    if unfinished.rebase_was_killed(checkout):
        return (
            "a rebase is running, or was killed",
            f"if git is not running any more, {undo_rebase(checkout)}; then the rebase again",
        )
    if not operation:
        return "", ""
    skip = "" if operation == "merge" else " --skip,"
    advice = (
        f"{checkout.git_command} {operation} --continue,{skip} or --abort; all but --continue"
        " discard edits that are not committed, and --abort also the commits since the"
        f" {operation} began"
    )
    onto = rebase_target(checkout, current.pin.commit)
    if onto and onto != current.pin.commit:
        advice += f"; after the last --continue, k2mps export --onto {onto[:12]}"
    return f"an unfinished {operation}", advice


def _details_of_edits(differences: Differences, exchanged: Sequence[str]) -> list[str]:
    """Returns lines about the edited files.

    Args:
      exchanged: see `Checkout.exchanged`.
    """
    details = []
    edited = differences.edited
    if edited:
        details.append(f"{len(edited)} file(s) with uncommitted edits: {errors.some(edited)}")
    if exchanged:
        details.append(
            f"a folder is where a file was, or a file where a folder was: {errors.some(exchanged)};"
            " git stash, restore and checkout would delete it"
        )
    if differences.staged_only:
        staged = errors.some(differences.staged_only)
        details.append(f"staged versions that the files do not have: {staged}")
    return details


def _next_step(
    current: Transaction, differences: Differences, users: Sequence[str], exchanged: Sequence[str]
) -> str:
    """Returns the command that brings the checkout and patches/ together.

    Args:
      users: the user's commits.
      exchanged: see `Checkout.exchanged`.
    """
    checkout, head, edited = current.checkout, current.head, differences.edited
    if differences.unmerged:
        conflicts = errors.some(differences.unmerged)
        return (
            f"edit the conflicts in {conflicts}, and {checkout.git_command} add; then k2mps status"
        )
    if differences.staged_only:
        return f"{choice_of_version(checkout, differences.staged_only)}; then k2mps status"
    is_rebased = _is_rebased(current)
    on_branch = head.branch == BRANCH_REF
    if is_rebased and not edited and _may_export(current):
        return f"k2mps export --onto {current.base[:12]}"
    if edited and on_branch and not users and current.tip_is_known and not is_rebased:
        return "k2mps fold PATCH, or k2mps new SUBJECT"
    if users and on_branch and not edited and _may_export(current):
        return "k2mps export"
    if edited and head.branch and not current.changed:
        stash = f"{checkout.git_command} stash"
        put_away = "move what is there away" if exchanged else stash
        return f"commit the edits, or {put_away}; then k2mps status"
    return APPLY


def _may_export(current: Transaction) -> bool:
    """Whether `k2mps export` can be the next command.

    The result is True if patches/ has not changed since it was applied.  The result is also True if
    the tool made the checked-out commit, because a `new` or `fold` may have been killed after it
    had moved the branch.
    """
    if current.tip_is_known:
        return True
    (top,) = current.checkout.commits("-1", current.head.commit)
    return top.ours


def _is_rebased(current: Transaction) -> bool:
    """Whether git has put the checked-out branch k2-mps onto another commit than the pin."""
    return current.head.branch == BRANCH_REF and current.base not in ("", current.pin.commit)


def _where(current: Transaction) -> tuple[State, list[str], list[str]]:
    """Returns the state of the checked-out commit, the user's commits, and details as lines."""
    checkout, head, pin = current.checkout, current.head, current.pin
    if head.commit == pin.commit:
        return State.PRISTINE, [], []
    on_pin = checkout.is_ancestor(pin.commit, head.commit)
    if on_pin and current.applied and head.commit == current.applied.tip:
        return State.APPLIED, [], []
    if _is_rebased(current):
        return State.EDITED, [], [f"git has rebased branch {BRANCH} onto {current.base[:12]}"]
    mine = current.user_commits(last=head.commit) if on_pin else []
    if mine:
        lines = [str(commit) for commit in mine]
        return State.EDITED, lines, [f"{len(mine)} commit(s) that patches/ lacks"]
    (top,) = checkout.commits("-1", head.commit)
    if top.ours:
        why = "another version of the series is applied, or another clone of k2-mps applied it"
        return State.OTHER_SERIES, [], [why]
    detail = f"it is at {head.commit[:12]}, the series is for {pin.commit[:12]} (k2 {pin.version})"
    return State.OTHER_COMMIT, [], [detail]
