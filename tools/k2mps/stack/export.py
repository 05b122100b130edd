"""Making patches/ from the commits on branch k2-mps.

`export` is the inverse of `apply`: exporting the applied series gives the same
bytes, and applying an exported series gives the same tree.
"""

from k2mps.core import errors
from k2mps.core.git import quoted
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.stack import extraction, moving, states
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Commit
from k2mps.stack.commits import commit_patches, series_tip
from k2mps.stack.states import States


def export(
    project: Project, checkout: Checkout, *, prune: bool = False, overwrite: bool = False
) -> tuple[extraction.Plan, str]:
    """Writes patches/ from branch k2-mps, whose commits become those that `apply` makes.

    Args:
      prune: delete patches and new files that the branch has no longer.
      overwrite: write over changes that patches/ has got since it was applied.
    Returns:
      What was written, and the tree that the series gives.
    """
    with states.at_work(project, checkout) as known:
        pin = project.upstream().pin
        _check_exportable(pin, known)
        tip = known.head.tip
        commits = checkout.commits(f"{pin.commit}..{tip}")
        if not commits:
            raise errors.K2mpsError(
                f"branch {BRANCH} has no commits on top of the pin",
                why="exporting that would delete every patch",
                next_command="k2mps apply",
            )
        made = extraction.plan(project, checkout, commits)
        if (made.changed or made.removed) and not overwrite:
            _check_unchanged(pin, known)
        if made.removed and not (prune or overwrite):
            raise errors.K2mpsError(
                f"the branch does not have {', '.join(made.removed)}",
                why="the commits may have been dropped by mistake",
                next_command="k2mps export --prune, to delete them",
            )
        finish(known, "export", made, commits)
    return made, checkout.tree_of(tip)


def finish(
    known: States, command: str, made: extraction.Plan, commits: list[Commit], how: str = "index"
) -> None:
    """Writes a plan, and moves the branch to the commits that `apply` makes of it.

    Args:
      commits: those that the plan is of.
      how: as in `Move`.
    """
    tip = _canonical(known.checkout, known.project.upstream().pin, made, commits)
    if made.changed or made.removed or known.head.tip != tip:
        move = moving.to(tip, how)
        known.carry_out(command, changed=made.changed, removed=made.removed, move=move)
    elif not ((now := known.known()) and now.tip == tip):
        known.record(command, synced=True)


def _canonical(checkout: Checkout, pin: Pin, made: extraction.Plan, commits: list[Commit]) -> str:
    """The last of a plan's commits as `apply` makes them, which proves that it can."""
    start, patches = 0, made.series.patches
    for patch, commit in zip(patches, commits):
        if not commit.ours or commit.message != patch.commit_message():
            break
        start += 1
    base = commits[start - 1].id if start else pin.commit
    tip = commit_patches(checkout, pin, base, patches[start:], made.series)
    if checkout.tree_of(tip) != checkout.tree_of(commits[-1].id):
        raise errors.K2mpsError(
            f"the commits from {commits[start].subject!r} on cannot be written as patches",
            why="the patches give other files than the commits",
            next_command=f"git -C {quoted(checkout.directory)} rebase -i, and change them",
        )
    return tip


def _check_exportable(pin: Pin, known: States) -> None:
    """Refuses a checkout whose work is not all on the branch."""
    # A rebase, too, is on no branch; its end brings the checkout back to it.
    checkout, head = known.checkout, known.head
    where = quoted(checkout.directory)
    checkout.check_at_rest()
    if head.branch != BRANCH_REF:
        back = f"git -C {where} checkout {BRANCH}"
        if not head.tip:
            back = "k2mps apply, then commit your change there"
        elif not (head.branch or checkout.is_ancestor(head.commit, head.tip)):
            # The commits have no other name.
            back = f"git -C {where} branch mine; {back}; git -C {where} merge --ff-only mine"
        raise errors.K2mpsError(
            f"{checkout.directory} is not on branch {BRANCH}",
            why="patches are made from the commits on that branch",
            next_command=back,
        )
    if not checkout.is_ancestor(pin.commit, head.tip):
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} does not start from the"
            f" pinned commit {pin.commit[:12]}",
            next_command="k2mps status",
        )


def _check_unchanged(pin: Pin, known: States) -> None:
    """Refuses where patches/ has changed since it was applied here: the branch lacks that change,
    and exporting the branch would revert it."""
    if known.known() or known.last_synced is None:
        return
    why = f"by git or by hand, and export would undo that: {errors.some(known.changed_paths())}"
    try:
        tip = series_tip(known.project, known.checkout, pin, states=known)
        if known.checkout.is_ancestor(tip, known.head.tip):
            return  # `apply` has carried the user's commits over
    except errors.K2mpsError as error:
        why += f"; {error.what}"  # what does not apply is a change, too
    raise errors.K2mpsError(
        "patches/ has changed since it was applied here",
        why=why,
        next_command="k2mps apply, which carries your commits over; or k2mps export --overwrite,"
        " to give the change up",
    )
