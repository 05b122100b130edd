"""The state of a checkout and of patches/.

A checkout is "applied" if its files are the tree that patches/ gives.  On branch k2-mps the commits
must also be the patches.  The states know both; `status` makes no commits.
"""

import contextlib
import dataclasses
import enum

from k2mps.core import errors
from k2mps.core.git import quoted
from k2mps.core.pins import Upstream
from k2mps.core.project import Project
from k2mps.stack import states
from k2mps.stack.checkout import BRANCH_REF, Checkout, Head
from k2mps.stack.commits import series_tip, unexported
from k2mps.stack.states import States

APPLY = "k2mps apply"
_OF_REBASE = "k2mps rebase --continue, or --abort"


class State(str, enum.Enum):
    ABSENT = "absent"
    PRISTINE = "pristine"
    APPLIED = "applied"
    OTHER_SERIES = "applied by another version of the series"
    EDITED = "edited"
    OTHER_COMMIT = "other commit"


_ADVICE = {
    State.PRISTINE: APPLY,
    State.OTHER_SERIES: APPLY,
    State.EDITED: "k2mps export",
    State.OTHER_COMMIT: "k2mps apply",
}


@dataclasses.dataclass(frozen=True)
class Status:
    """What `k2mps status` tells."""

    state: State  # the state of the checkout
    details: tuple[str, ...]  # the reasons for the state, one line each
    next_command: str  # what the user should run; empty where nothing is to do
    head: Head | None  # where the checkout stands, None where there is none
    edited_files: tuple[str, ...]  # tracked files that differ from HEAD
    user_commits: tuple[str, ...]  # the user's commits on top of the pin, as "id subject"
    patch_changes: tuple[str, ...]  # the files of patches/ that changed since they were applied
    untracked_files: tuple[str, ...] = ()  # files that git neither tracks nor ignores
    rebase: str = ""  # a sentence about the rebase in progress; empty where none is


def of_checkout(
    project: Project,
    upstream: Upstream,
    checkout: Checkout | None,
    tip: str = "",
    known: States | None = None,
) -> Status:
    """The status of a checkout, or of its absence; `tip` is the commit of the series, if known."""
    stopped = states.rebase_under_way(project)
    if checkout is None:
        advice = _OF_REBASE if stopped else APPLY
        return Status(State.ABSENT, (), advice, None, (), (), (), rebase=stopped)
    head = checkout.head()
    edited, untracked = map(tuple, checkout.changed_files(untracked=not tip))
    known = known or States(project, checkout)
    now = known.known()
    changes = () if now else tuple(known.changed_paths())
    tip = tip or (now.tip if now else "")
    if not tip and known.last_synced is None and head.commit != upstream.pin.commit:
        with contextlib.suppress(errors.K2mpsError):  # e.g. where k2 cannot be written
            tip = series_tip(project, checkout, upstream.pin, states=known)
    state, users, details = _judge(project, upstream, checkout, head, known, tip)
    if edited and state in (State.PRISTINE, State.APPLIED, State.OTHER_SERIES):
        state = State.EDITED
    operation, end = checkout.operation_in_progress()
    if operation:
        details.append(f"{operation} is in progress")
    if edited:
        details.append(f"{len(edited)} file(s) with uncommitted edits: {errors.some(edited)}")
    advice = _OF_REBASE if stopped else end or _next(checkout, upstream, state, head, edited, users)
    if not stopped and not end and changes and not edited:
        advice = APPLY  # which also carries commits over
    return Status(state, tuple(details), advice, head, edited, users, changes, untracked, stopped)


def _judge(
    project: Project, upstream: Upstream, checkout: Checkout, head: Head, known: States, tip: str
) -> tuple[State, tuple[str, ...], list[str]]:
    """The state, the user's commits and the details; `tip` is empty if patches/ was not applied
    here as it is."""
    pin = upstream.pin
    on_branch = head.branch == BRANCH_REF
    if head.commit == pin.commit:
        return State.PRISTINE, (), []
    if tip and (head.commit == tip or not on_branch and head.tree == checkout.tree_of(tip)):
        return State.APPLIED, (), []
    last = known.last_synced
    on_pin = checkout.is_ancestor(pin.commit, head.commit)
    if not tip and last and head.commit == last.tip and on_pin:
        return State.APPLIED, (), []
    (top,) = checkout.commits("-1", head.commit)
    if on_pin:
        mine = unexported(project, checkout, pin.commit, head.commit, known)
        users = tuple(map(str, mine))
        if users:
            return State.EDITED, users, [f"{len(users)} commit(s) of yours on top of the pin"]
        if top.ours or last and head.commit == last.tip:
            return State.OTHER_SERIES, (), ["the series was applied in another version"]
    elif top.ours:
        detail = f"the series was applied to another commit than {pin.commit[:12]}"
        return State.OTHER_SERIES, (), [detail]
    detail = f"it is at {head.commit[:12]}, the series is for {pin.commit[:12]} (k2 {pin.version})"
    return State.OTHER_COMMIT, (), [detail]


def _next(
    checkout: Checkout,
    upstream: Upstream,
    state: State,
    head: Head,
    edited: tuple[str, ...],
    users: tuple[str, ...],
) -> str:
    where = quoted(checkout.directory)
    if edited:
        if head.branch == BRANCH_REF and not users:
            return "k2mps fold PATCH, or k2mps new SUBJECT"
        return f"commit the edits, or git -C {where} stash; then k2mps status"
    if state is State.OTHER_COMMIT and not checkout.own:
        return f"git -C {where} checkout {upstream.pin.commit}, then k2mps apply"
    return _ADVICE.get(state, "")
