"""Writes patches/ from the commits on branch k2-mps.

`export` is the inverse of `apply`.  `export` after `apply` does not change a byte of patches/, and
`apply` after `export` gives the same tree of k2.
"""

import contextlib
import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from k2mps.core import errors, objects, replacement
from k2mps.core.objects import Entry, File
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.stack import applied, extraction, upstream
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Commit
from k2mps.stack.commits import commit_patches, pick
from k2mps.stack.extraction import Plan
from k2mps.stack.work import Work, at_work, refused, where

# The entries of the files that a command may overwrite, by path in the project.  If a file differs
# from its entry, someone has changed it, so the command does not overwrite the file.
Base = Mapping[str, Entry]


def export(
    project: Project, checkout: Checkout, *, prune: bool = False, onto: str = ""
) -> tuple[Plan, Pin]:
    """Writes patches/ from branch k2-mps, and moves the branch to the commits that `apply` makes.

    Args:
      prune: whether to delete the patches that the branch no longer has, and their new files.
      onto: the upstream commit onto which git has rebased the branch, a result of
        `upstream.commit_of`; it becomes the pin.  Empty if the pin stays.
    Returns:
      The plan of the written files, and the pin.
    """
    with at_work(project, checkout) as work:
        checkout.check_at_rest(checkout.changed_files()[0])
        pin = work.pin
        if onto and onto != pin.commit:
            pin = upstream.pin_at(checkout, pin, onto)
        base = merge_base(work)
        commits = exportable(work, pin)
        if not commits:
            raise errors.K2mpsError(
                f"branch {BRANCH} has no commits on top of the pin",
                why="an export would delete every patch",
                next_command="k2mps apply",
            )
        plan = extraction.plan(project, checkout, commits, pin if onto else None)
        check_files(project, plan, base, "export")
        if plan.removed and not prune:
            raise errors.K2mpsError(
                f"the branch does not have {', '.join(plan.removed)}",
                why=_why_dropped(work, pin, plan.removed),
                next_command=f"k2mps export {f'--onto {onto[:12]} ' if onto else ''}--prune, which"
                " deletes them",
            )
        finish(work, plan, base, canonical(work, plan, commits, pin), "export")
    return plan, pin


def _why_dropped(work: Work, pin: Pin, removed: Sequence[str]) -> str:
    """Returns why the branch may lack the patches among the files `removed`."""
    checkout, tree = work.checkout, work.checkout.tree_of(pin.commit)
    dropped, superseded = "the commits may have been dropped by mistake", []
    if pin.commit == work.pin.commit or not work.applied:
        return dropped
    for commit in checkout.commits(f"{work.pin.commit}..{work.applied.tip}"):
        path = f"patches/{extraction.name_of(commit)}"
        if path in removed and pick(checkout.objects, commit, tree).tree == tree:
            superseded.append(path)
    if not superseded:
        return dropped
    return f"k2 has the changes of {', '.join(superseded)} at {pin.commit[:12]}"


def exportable(work: Work, pin: Pin) -> list[Commit]:
    """Returns the commits of branch k2-mps on top of a pin.

    Raises:
      K2mpsError: this branch is not checked out, or does not stand on the pin.
    """
    checkout, head = work.checkout, work.head
    here = where(checkout)
    if head.branch != BRANCH_REF:
        back = f"{here} checkout {BRANCH}"
        if not head.tip:
            back = "k2mps apply, then make your change there"
        elif not (head.branch or checkout.is_ancestor(head.commit, head.tip)):
            # HEAD is detached: perhaps no branch leads to its commits.
            back = f"{here} branch mine; {back}; {here} merge --ff-only mine"
        raise errors.K2mpsError(
            f"{checkout.directory} is not on branch {BRANCH}",
            why="patches are made from the commits on that branch",
            next_command=back,
        )
    base = work.base
    on_pin = checkout.is_ancestor(pin.commit, head.tip)
    # If git has rebased the branch, upstream's own commits are between the old pin and `base`.
    if not on_pin or base and base != pin.commit and checkout.is_ancestor(pin.commit, base):
        if pin.commit != work.pin.commit:
            commits = f"{pin.commit[:12]} {(base or work.pin.commit)[:12]}"
            advice = f"{here} rebase --onto {commits} {BRANCH}, then the same command again"
        else:
            advice = f"k2mps export --onto {base[:12]}" if base else "k2mps apply"
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} does not start from"
            f" {'' if pin.commit != work.pin.commit else 'the pinned commit '}{pin.commit[:12]}",
            why=f"it starts from {base[:12]}" if base else "",
            next_command=advice,
        )
    return checkout.commits(f"{pin.commit}..{head.tip}")


def merge_base(work: Work) -> Base:
    """Returns the files of patches/ that may be overwritten, because the branch has their content.

    If the branch contains all commits of the series, the result has the current files of patches/.
    Otherwise, the result has the files that the tool's ref has.
    """
    if work.applied and not work.changed:
        return work.entries
    with contextlib.suppress(errors.K2mpsError):
        # If another clone of k2-mps has applied the series, the tool's ref is missing.
        if work.checkout.is_ancestor(work.tip(), work.head.tip):
            return work.entries
    return work.applied.files if work.applied else {}


def canonical(work: Work, plan: Plan, commits: Sequence[Commit], pin: Pin) -> str:
    """Makes the commits of a plan as `apply` does, and returns the id of the last one.

    An error is raised if a patch of the plan does not apply, or if the result differs from the
    branch.

    Args:
      commits: the branch's commits on the pin, from which the plan was made.
    """
    start, patches, checkout = 0, plan.series.patches, work.checkout
    for patch, commit in zip(patches, commits):
        if not commit.ours or commit.message != patch.commit_message():
            break
        start += 1
    base = commits[start - 1].id if start else pin.commit
    tip = commit_patches(checkout, pin, base, patches[start:], plan.series)
    if checkout.tree_of(tip) != commits[-1].tree:
        raise errors.K2mpsError(
            f"the commits from {commits[start].subject!r} on cannot be written as patches",
            why="the patches give other files than the commits",
            next_command=f"{where(checkout)} rebase -i, and change them",
        )
    return tip


def finish(work: Work, plan: Plan, base: Base, tip: str, doing: str) -> None:
    """Moves the branch to the commit `tip`, writes the plan, and moves the tool's ref.

    No file of the checkout changes.  If this function is killed, the branch has all commits, and
    the next export writes the rest.

    Args:
      plan: the files; `tip` is the last commit that `apply` makes of them.
      base: the files that may be overwritten.
      doing: the command's name, for messages.
    """
    if not (plan.changed or plan.removed):
        work.record(tip, plan.files, branch=tip)
        return
    applied.move(work.checkout, [(BRANCH_REF, tip, work.head.tip)])
    write(work.project, plan, base, doing)
    work.record(tip, plan.files)


def check_files(project: Project, plan: Plan, base: Base, doing: str) -> None:
    """Raises an error if a file that must be written differs both from `base` and from the plan."""
    paths = (*plan.changed, *plan.removed)
    other = [one for one in paths if not _may_replace(project, one, plan.files.get(one), base)]
    if other:
        raise refused(project, other, doing)


def _may_replace(project: Project, path: str, new: File | None, base: Base) -> bool:
    target = project.root / path
    if not os.path.lexists(target):
        return True
    if target.is_symlink() or not target.is_file():
        return False
    now = objects.read(target).entry
    return now == base.get(path) or bool(new and now == new.entry)


def write(project: Project, plan: Plan, base: Base, doing: str) -> None:
    """Writes the files of a plan one after the other.  After a kill, a second call writes the rest.

    Raises:
      K2mpsError: a file has been changed meanwhile.
    """
    for path in (*plan.changed, *plan.removed):
        target, file = project.root / path, plan.files.get(path)
        if not _may_replace(project, path, file, base):
            raise refused(project, [path], doing)
        if file:
            target.parent.mkdir(parents=True, exist_ok=True)
            folder = project.patches if path.startswith("patches/") else project.root
            replacement.replace(target, file, folder / replacement.DRAFT)
        elif not _is_another_name(project, path, plan.files):
            target.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                for parent in list(Path(path).parents)[:-2]:
                    (project.root / parent).rmdir()


def _is_another_name(project: Project, path: str, kept: Mapping[str, File]) -> bool:
    """Whether a path and one of the paths `kept` lead to the same file.

    This is possible on a file system that ignores case or normalizes Unicode.
    """
    with contextlib.suppress(FileNotFoundError):
        for other in kept:
            if _folded(other) == _folded(path):
                return os.path.samefile(project.root / other, project.root / path)
    return False


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()
