"""The state of a checkout and of patches/.

A checkout is "applied" if its files are the tree that patches/ gives.  On branch
k2-mps the commits must also be the patches, in order and by name.  Where
patches/ differs from the lock, the tree that was last applied here counts.
"""

import dataclasses
import enum
import itertools

from k2mps.core import errors, pins
from k2mps.core.pins import Upstream
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.series.patch_folder import Series
from k2mps.stack import commits, operations
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Head

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
    State.OTHER_COMMIT: "git checkout the pinned commit there, then k2mps apply",
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
    patch_changes: tuple[str, ...]  # the differences of patches/ and the lock, one line each
    untracked_files: tuple[str, ...] = ()  # files that git neither tracks nor ignores
    rebase: str = ""  # a sentence about the rebase in progress; empty where none is


def read(project: Project, upstream: Upstream) -> tuple[Series | None, tuple[str, ...]]:
    """patches/, None if it is malformed; and how it differs from the lock."""
    try:
        found = patch_folder.load(project.patches)
    except errors.SeriesError as error:
        return None, (error.what,)
    return found, tuple(pins.differences(upstream.lock, found.lock))


def of_checkout(
    project: Project,
    upstream: Upstream,
    checkout: Checkout | None,
    made: commits.Made | None = None,
) -> Status:
    """The status of a checkout, or of its absence; `made` is the locked series, if known."""
    found, changes = (None, ()) if made else read(project, upstream)
    stopped = operations.rebase_under_way(project)
    if checkout is None:
        advice = _OF_REBASE if stopped else APPLY
        return Status(State.ABSENT, (), advice, None, (), (), changes, rebase=stopped)
    head = checkout.head()
    edited, untracked = map(tuple, checkout.changed_files(untracked=not made))
    on_pin = head.commit == upstream.pin.commit
    if found and not changes and not on_pin:
        made = _made(checkout, upstream, found)
    state, users, details = _judge(project, upstream, checkout, head, edited, made)
    operation, end = checkout.operation_in_progress()
    if operation:
        details.append(f"{operation} is in progress")
    if edited:
        details.append(f"{len(edited)} file(s) with uncommitted edits: {errors.some(edited)}")
    advice = _OF_REBASE if stopped else end or _next_command(state, edited, changes, on_pin)
    return Status(state, tuple(details), advice, head, edited, users, changes, untracked, stopped)


def _made(checkout: Checkout, upstream: Upstream, found: Series) -> commits.Made | None:
    """The commits of the series; None where it does not apply, or where the
    repository cannot be written."""
    try:
        return commits.recall(checkout, upstream.pin, found) or commits.commit_series(
            checkout, upstream.pin, found
        )
    except errors.K2mpsError:
        return None


def _judge(
    project: Project,
    upstream: Upstream,
    checkout: Checkout,
    head: Head,
    edited: tuple[str, ...],
    made: commits.Made | None,
) -> tuple[State, tuple[str, ...], list[str]]:
    """The state, the user's commits and the details; `made` is None if patches/ is not as locked,
    or does not apply."""
    pin = upstream.pin
    if head.commit == pin.commit:
        return State.EDITED if edited else State.PRISTINE, (), []
    base = None if made else checkout.base()
    at_tree = head.tree == (made.tree if made else base and checkout.tree_of(base))
    if at_tree and (
        made is None
        or head.branch != BRANCH_REF
        or commits.say_series(project, checkout, pin, head.commit, made.tip)
    ):
        return State.EDITED if edited else State.APPLIED, (), []
    newest_first = reversed(checkout.commits(head.commit))
    ours = [*itertools.takewhile(lambda commit: commit.ours, newest_first)]
    if checkout.is_ancestor(pin.commit, head.commit):
        users = tuple(map(str, checkout.unexported(pin.commit, head.commit)))
        if users:
            return State.EDITED, users, [f"{len(users)} commit(s) of yours on top of the pin"]
        if ours or checkout.base() == head.commit:
            detail = (
                "the files are the same, but patches have another name, order or text by now"
                if at_tree
                else "the series was applied in another version"
            )
            return State.EDITED if edited else State.OTHER_SERIES, (), [detail]
    elif ours and not edited:
        other = ours[-1].parents[0][:12]
        return State.OTHER_SERIES, (), [f"the series was applied to another commit, {other}"]
    detail = f"it is at {head.commit[:12]}, the series is for {pin.commit[:12]} (k2 {pin.version})"
    return State.OTHER_COMMIT, (), [detail]


def _next_command(state: State, edited, changes, on_pin: bool) -> str:
    if changes:
        return (
            "k2mps lock, if the change of patches/ is meant; else"
            " git checkout patches upstream.toml"
        )
    if state is State.EDITED and edited:
        if on_pin:
            return "stash or commit the edits, then k2mps apply"
        return f"commit on branch {BRANCH}, then k2mps export"
    return _ADVICE.get(state, "")
