"""The state of a checkout and of patches/, as the states tell; `status` makes no commits."""

import dataclasses
import enum

from k2mps.core import errors
from k2mps.core.git import quoted
from k2mps.core.pins import Pin, Upstream
from k2mps.core.project import Project
from k2mps.stack import states
from k2mps.stack.checkout import BRANCH_REF, Checkout, Head
from k2mps.stack.states import States

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
    if checkout is None:
        stopped = states.rebase_under_way(project)
        advice = states.END_OF_REBASE if stopped else APPLY
        return Status(State.ABSENT, (), advice, None, (), (), (), (), stopped)
    known = States(project, checkout)
    now = known.known()
    return judge(upstream.pin, known, now.tip if now else "", "normal")


def judge(pin: Pin, known: States, tip: str, untracked: str = "no") -> Status:
    """The status.

    Args:
      tip: the series' commit; empty if patches/ was not applied as it is.
      untracked: as for `Checkout.changed_files`.
    """
    checkout, head = known.checkout, known.head
    edited, others = checkout.changed_files(untracked)
    state, users, details = _where(pin, known, tip)
    operation = checkout.operation_in_progress()
    if operation:
        details.append(f"a {operation} is in progress")
    if edited:
        details.append(f"{len(edited)} file(s) with uncommitted edits: {errors.some(edited)}")
        if state is not State.OTHER_COMMIT:
            state = State.EDITED
    changes = () if known.known() else known.changed_paths()
    stopped = states.rebase_under_way(known.project)
    where = f"git -C {quoted(checkout.directory)}"
    if stopped:
        advice = states.END_OF_REBASE
    elif operation:
        advice = f"{where} {operation} --continue, or --abort"
    elif edited and head.branch == BRANCH_REF and not users:
        advice = "k2mps fold PATCH, or k2mps new SUBJECT"
    elif edited:
        advice = f"commit the edits, or {where} stash; then k2mps status"
    elif users and not changes:
        advice = "k2mps export"
    elif state is State.OTHER_COMMIT and not (checkout.own or changes):
        advice = f"{where} checkout {pin.commit}, then {APPLY}"
    else:  # `apply` also carries commits over
        advice = "" if state is State.APPLIED and not changes else APPLY
    found = map(tuple, (edited, users, changes, others))
    return Status(state, tuple(details), advice, head, *found, stopped)


def _where(pin: Pin, known: States, tip: str) -> tuple[State, list[str], list[str]]:
    """The state by the commit that is checked out, the user's commits, and the details."""
    checkout, head, last = known.checkout, known.head, known.last_synced
    if head.commit == pin.commit:
        return State.PRISTINE, [], []
    on_pin = checkout.is_ancestor(pin.commit, head.commit)
    if on_pin and head.commit == (tip or (last.tip if last else "")):
        return State.APPLIED, [], []
    mine = known.unexported(pin.commit, head.commit) if on_pin else []
    if mine:
        return State.EDITED, list(map(str, mine)), [f"{len(mine)} commit(s) of yours on the pin"]
    (top,) = checkout.commits("-1", head.commit)
    if top.ours:
        return State.OTHER_SERIES, [], ["the series was applied in another version, or elsewhere"]
    detail = f"it is at {head.commit[:12]}, the series is for {pin.commit[:12]} (k2 {pin.version})"
    return State.OTHER_COMMIT, [], [detail]
