"""Making patches/ from the commits on branch k2-mps.

`export` is the inverse of `apply`: exporting the applied series gives the same
bytes, and applying an exported series gives the same tree.
"""

from collections.abc import Callable, Mapping

from k2mps.core import errors
from k2mps.core.git import quoted
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.series.patch_text import FROM
from k2mps.stack import extraction, states
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Commit
from k2mps.stack.commits import commit_date, commit_patches, series_tip
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
    with states.at_work(project, checkout):
        pin = project.upstream().pin
        tip = _tip(pin, checkout)
        commits = checkout.commits(f"{pin.commit}..{tip}")
        if not commits:
            raise errors.K2mpsError(
                f"branch {BRANCH} has no commits on top of the pin",
                why="exporting that would delete every patch",
                next_command="k2mps apply",
            )
        made = extraction.plan(project, checkout, commits)
        if (made.written or made.removed) and not overwrite:
            _check_unchanged(project, checkout, pin, tip)
        if made.removed and not (prune or overwrite):
            raise errors.K2mpsError(
                f"the branch does not have {', '.join(made.removed)}",
                why="the commits may have been dropped by mistake",
                next_command="k2mps export --prune, to delete them",
            )
        finish(project, checkout, "export", made, commits)
    return made, checkout.tree_of(tip)


def finish(
    project: Project,
    checkout: Checkout,
    command: str,
    made: extraction.Plan,
    commits: list[Commit],
    *,
    move: Callable[[str], object] | None = None,
    staged: bool = False,
) -> None:
    """Writes a plan, and moves the branch to the commits that `apply` makes of it.

    Args:
      commits: those that the plan is of.
      move: moves the branch to the last commit; by default, without a change of files.
      staged: as in `State`.
    """
    pin = project.upstream().pin
    tip = canonical(checkout, pin, made, commits)
    found = States(project, checkout)
    known = found.known()
    if not (made.changed or made.removed) and checkout.commit_of(BRANCH_REF) == tip:
        if not (known and known.tip == tip):
            found.record(command, synced=True)
        return

    def reset() -> None:
        if staged:
            states.commit_edits(checkout, tip)
        else:
            checkout.git.bytes("reset", "--quiet", "--soft", tip, work_tree=True)

    states.carry_out(
        project,
        checkout,
        command,
        changed=made.changed,
        removed=made.removed,
        tip=tip,
        move=(lambda: move(tip)) if move else reset,
        staged=staged,
    )


def canonical(checkout: Checkout, pin: Pin, made: extraction.Plan, commits: list[Commit]) -> str:
    """The commits of a plan as `apply` makes them; the last one's id.

    git's own reader of mail confirms the words of those patches that have other ones than before.
    """
    date = commit_date(checkout, pin.commit)
    words: Mapping[str, str] = {one.id: one.message for one in commits if one.ours}
    tip, checked = pin.commit, None
    trees = checkout.trees_of(one.id for one in commits)
    for number, (patch, commit) in enumerate(zip(made.series.patches, commits)):
        message = patch.commit_message()
        author = commit.author.raw if patch.author != FROM else f"{FROM} {date}"
        if words.get(commit.id) != message and checked is None:
            checked = (number, tip)
        tip = checkout.store(trees[commit.id], [tip], message, author, f"{FROM} {date}")
    if checked:
        start, base = checked
        series = made.series
        if commit_patches(checkout, pin, base, series.patches[start:], series) != tip:
            raise errors.K2mpsError(
                f"the commits from {commits[start].subject!r} on cannot be written as patches",
                why="git reads another message or author from the patch files than the commits"
                " have",
                next_command=f"git -C {quoted(checkout.directory)} rebase -i, and reword them",
            )
    return tip


def _tip(pin: Pin, checkout: Checkout) -> str:
    """The last commit to export; refuses a checkout with further work."""
    where = quoted(checkout.directory)
    # A rebase, too, is on no branch; its end brings the checkout back to it.
    checkout.check_at_rest()
    tip = checkout.commit_of(BRANCH_REF)
    if not tip:
        raise errors.K2mpsError(
            f"{checkout.directory} has no branch {BRANCH}",
            why="patches are made from the commits on that branch",
            next_command="k2mps apply, then commit your change there",
        )
    head = checkout.head()
    if head.branch != BRANCH_REF:
        mine = (
            head.branch is None
            and head.commit != tip
            and not checkout.is_ancestor(head.commit, tip)
        )
        raise errors.K2mpsError(
            f"{checkout.directory} is not on branch {BRANCH}",
            why="commits made elsewhere would be left out",
            next_command=f"git -C {where} branch mine; git -C {where} checkout {BRANCH}; git -C"
            f" {where} merge --ff-only mine"
            if mine
            else f"git -C {where} checkout {BRANCH}",
        )
    if not checkout.is_ancestor(pin.commit, tip):
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} does not start from the"
            f" pinned commit {pin.commit[:12]}",
            next_command="k2mps status",
        )
    return tip


def _check_unchanged(project: Project, checkout: Checkout, pin: Pin, tip: str) -> None:
    """Refuses where patches/ has changed since it was applied here: the branch lacks that change,
    and exporting the branch would revert it."""
    found = States(project, checkout)
    if found.known() or found.last_synced is None:
        return
    try:
        if checkout.is_ancestor(series_tip(project, checkout, pin), tip):
            return
    except errors.SeriesError as error:
        remedy = f"{error.next_command}; or k2mps export --overwrite, to write patches/ anew"
        raise errors.SeriesError(error.what, why=error.why, next_command=remedy) from None
    except errors.K2mpsError:
        pass  # what does not apply is a change, too
    raise errors.K2mpsError(
        "patches/ has changed since it was applied here",
        why="by git or by hand, and export would undo that change:"
        f" {errors.some(found.changed_paths())}",
        next_command="k2mps apply, which carries your commits over; or k2mps export --overwrite,"
        " to give the change up",
    )
