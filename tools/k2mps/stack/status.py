"""The state of a checkout and of patches/, by the tool's ref, and the command that goes on."""

import dataclasses
import enum

from k2mps.core import errors
from k2mps.core.pins import Upstream
from k2mps.core.project import Project
from k2mps.stack import work
from k2mps.stack.checkout import BRANCH_REF, Checkout, Head
from k2mps.stack.work import Work

# Where edits or commits of the user's are in its way, it says what to do.
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
    """What `k2mps status` tells."""

    state: State  # the state of the checkout
    details: tuple[str, ...]  # the reasons for the state, one line each
    next_command: str  # what the user should run; empty where nothing is to do
    head: Head | None  # the commit and branch; None without a checkout
    edited_files: tuple[str, ...]  # tracked files that differ from HEAD
    user_commits: tuple[str, ...]  # the user's commits on top of the pin, as "id subject"
    patch_changes: tuple[str, ...]  # the files of patches/ that changed since they were applied
    untracked_files: tuple[str, ...]  # files that git neither tracks nor ignores
    rebase: str  # a sentence about the rebase in progress; empty where none is


def of_checkout(project: Project, upstream: Upstream, checkout: Checkout | None) -> Status:
    """The status of a checkout, or of its absence."""
    stopped = work.rebase_under_way(project)
    if checkout is None:
        advice = work.END_OF_REBASE if stopped else APPLY
        return Status(State.ABSENT, (), advice, None, (), (), (), (), stopped)
    if not checkout.commit_of(upstream.pin.commit):
        head, pin = checkout.head(), upstream.pin
        why = f"it does not have the pinned commit {pin.commit[:12]} (k2 {pin.version})"
        ours = checkout.commits("-1", head.commit)[0].ours
        state = State.OTHER_SERIES if ours else State.OTHER_COMMIT
        return Status(state, (why,), APPLY, head, (), (), (), (), stopped)
    found = Work(project, checkout)
    head, changes = found.head, found.changed
    edited, others = checkout.changed_files("normal")
    state, users, details = _where(found)
    operation = checkout.operation_in_progress()
    if operation:
        details.append(f"a {operation} is in progress")
    if edited:
        details.append(f"{len(edited)} file(s) with uncommitted edits: {errors.some(edited)}")
        if state is not State.OTHER_COMMIT:
            state = State.EDITED
    where, on_branch = work.where(checkout), head.branch == BRANCH_REF
    if stopped:
        advice = work.END_OF_REBASE
    elif operation:
        advice = f"{where} {operation} --continue, or --abort"
    elif state is State.APPLIED and not changes:
        advice = ""
    elif edited and on_branch and not users and found.tip_is_known:
        advice = "k2mps fold PATCH, or k2mps new SUBJECT"
    elif users and on_branch and not edited and _may_export(found):
        advice = "k2mps export"
    elif edited and not changes:
        advice = f"commit the edits, or {where} stash; then k2mps status"
    else:
        advice = APPLY
    return Status(
        state, tuple(details), advice, head, *map(tuple, (edited, users, changes, others)), stopped
    )


def _may_export(found: Work) -> bool:
    """Whether patches/ is as applied, or as a killed `new` or `fold` has left it, whose last commit
    is the tool's."""
    return found.tip_is_known or found.checkout.commits("-1", found.head.commit)[0].ours


def _where(found: Work) -> tuple[State, list[str], list[str]]:
    """The state of the checked-out commit, the user's commits, and the details."""
    checkout, head, pin = found.checkout, found.head, found.pin
    if head.commit == pin.commit:
        return State.PRISTINE, [], []
    on_pin = checkout.is_ancestor(pin.commit, head.commit)
    if on_pin and found.applied and head.commit == found.applied.tip:
        return State.APPLIED, [], []
    mine = found.users(of=head.commit) if on_pin else []
    if mine:
        return State.EDITED, [*map(str, mine)], [f"{len(mine)} commit(s) of yours on the pin"]
    (top,) = checkout.commits("-1", head.commit)
    if top.ours:
        return State.OTHER_SERIES, [], ["the series was applied in another version, or elsewhere"]
    detail = f"it is at {head.commit[:12]}, the series is for {pin.commit[:12]} (k2 {pin.version})"
    return State.OTHER_COMMIT, [], [detail]
