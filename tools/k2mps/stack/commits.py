"""The commits that the series becomes.

A commit's author is its patch's; the committer is fixed, and the date is the pin's, so that a
commit's id depends on the pin and on patches/ only.  `git am` makes the commits, in a worktree
without files; `git merge-tree` puts a commit onto another one, without a worktree.
"""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from k2mps.core import errors
from k2mps.core.git import Git
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.series.patch_folder import Series
from k2mps.series.patch_text import FROM, Patch
from k2mps.stack import extraction
from k2mps.stack.checkout import Checkout, Commit
from k2mps.stack.states import States

AM = "am --quiet --keep --keep-cr --no-scissors --no-3way".split()
# What git says where a patch is sound, and does not fit.
_MISFIT = re.compile("already exists|does not exist|does not match|patch failed|cannot stat")


class DoesNotApplyError(errors.ConflictError):
    """A patch conflicts with the pin or with the patches before it."""


def series_tip(
    project: Project,
    checkout: Checkout,
    pin: Pin,
    found: Series | None = None,
    states: States | None = None,
) -> str:
    """The last commit of the series that patches/ is now; made, or remembered.

    Raises:
      DoesNotApplyError: names the patch and the file.
    """
    known = (states or States(project, checkout)).known()
    if known and checkout.is_ancestor(pin.commit, known.tip):
        return known.tip
    found = found or patch_folder.load(project.patches)
    return commit_patches(checkout, pin, pin.commit, found.patches, found)


def commit_patches(
    checkout: Checkout, pin: Pin, base: str, patches: Sequence[Patch], found: Series
) -> str:
    """Makes the commits of some patches of a series on a commit; the last one's id."""
    if not patches:
        return base
    date = commit_date(checkout, pin.commit)
    with _worktree(checkout, base) as (here, admin):
        mails = b"".join(patch.mail(found.files, mail_date(date)) for patch in patches)
        when = {"GIT_COMMITTER_DATE": date}
        result = here.run(*AM, stdin=mails, work_tree=True, environment=when)
        if result.status != 0:
            raise _refusal(patches, os.fsdecode(result.stdout) + result.stderr)
        return (admin / "HEAD").read_text().strip()


@contextlib.contextmanager
def _worktree(checkout: Checkout, commit: str) -> Iterator[tuple[Git, Path]]:
    """A worktree of its own, without files: git writes those that it needs; and what git knows of
    the worktree, a folder whose HEAD is its commit."""
    folder = checkout.git_dir / "k2mps-work"
    if folder.exists():  # of a run that was killed
        checkout.remove_worktree(folder)
    admin = folder
    try:
        options = "worktree add --quiet --no-checkout --detach".split()
        checkout.git.bytes(*options, str(folder), commit)
        admin = Path((folder / ".git").read_text().removeprefix("gitdir: ").strip())
        here = Git(folder, literal=True, reporter=checkout.reporter)
        here.bytes("read-tree", "HEAD")
        yield here, admin
    finally:
        for one in (admin, folder):  # the next run looks for the folder
            shutil.rmtree(one, ignore_errors=True)


def _refusal(patches: Sequence[Patch], output: str) -> errors.K2mpsError:
    """What `git am` says."""
    number = re.search(r"^Patch failed at (\d+)", output, re.MULTILINE)
    patch = patches[int(number[1]) - 1 if number else 0]
    told = "; ".join(re.findall(r"^error: (.*)$", output, re.MULTILINE)) or output
    misfit = _MISFIT.search(told)
    return (DoesNotApplyError if misfit else errors.SeriesError)(
        f"patches/{patch.name}:1: does not apply: {told}",
        why="the pin was moved, k2 or an earlier patch has the same file or changes the same"
        " lines, or the patch was edited by hand"
        if misfit
        else "git does not take it for a patch",
        next_command="k2mps apply, which stops there as a rebase does; git log -- upstream.toml"
        " patches, to see what changed",
    )


def commit_date(checkout: Checkout, pin: str) -> str:
    """When the commits of a series on this pin are made, for git: "SECONDS +0000"."""
    return checkout.git.text("show", "--no-patch", "--format=%ct +0000", pin)


def mail_date(date: str) -> str:
    """A date of git's as mail has it."""
    return time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(int(date.split(" ")[0])))


def merged(checkout: Checkout, base: str, ours: str, theirs: str) -> tuple[str, list[str]]:
    """The tree `ours` with what leads from the tree `base` to the tree `theirs`, by a 3-way merge;
    and the files that conflict, with git's markers in that tree."""
    if base == ours:
        return theirs, []
    # merge-tree takes commits, and finds the base itself.
    who = f"{FROM} 0 +0000"
    root = checkout.store(base, [], "", who, who)
    sides = [checkout.store(tree, [root], "", who, who) for tree in (ours, theirs)]
    options = "merge-tree --write-tree --no-messages --name-only -z".split()
    result = checkout.git.run(*options, *sides)
    if result.status not in (0, 1):
        raise checkout.git.failure(options, result)
    tree, *conflicts = os.fsdecode(result.stdout).rstrip("\0").split("\0")
    return tree, conflicts


def replay(
    checkout: Checkout, date: str, tip: str, commits: Sequence[Commit], ours: bool = True
) -> str:
    """Puts commits onto another one; the last commit.

    Args:
      date: as of `commit_date`.
      commits: what is put there; the id of one may be the tree that it is to give on its parent.
      ours: whether the tool is the committer; else the user is.
    """
    who = FROM if ours else "{} <{}>".format(*checkout.user())
    sides = (side for one in commits for side in (one.parents[0], one.id))
    trees = checkout.trees_of([tip, *sides])
    tree = trees[tip]
    for one in commits:
        new, conflicts = merged(checkout, trees[one.parents[0]], tree, trees[one.id])
        if conflicts or new == tree:
            name = extraction.name_of(one) or str(one)
            raise errors.K2mpsError(
                f"{name} does not apply any more",
                why=f"it changes the same lines of {errors.some(conflicts)}, or lines next to them"
                if conflicts
                else "nothing of it is left",
                next_command=f"change or drop {name} first; or k2mps fold the edits into it",
            )
        tip = checkout.store(new, [tip], one.message, f"{one.author} {one.when}", f"{who} {date}")
        tree = new
    return tip
