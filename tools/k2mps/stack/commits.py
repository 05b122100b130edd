"""Makes the commits of the series with git's plumbing commands, which change no checked-out file.

The author of a commit is the author of its patch.  The committer is fixed, and the committer's date
is the date of the pinned commit.  So a commit's id depends only on the pin and on patches/.

`apply_patch` applies a patch to a tree; `pick` applies the change of a commit to a tree.  A patch
names a blob id for each file that it edits.  If the files in the tree have these ids, git applies
the patch without a merge.  Otherwise git merges: the blobs that the patch names are the base.
"""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from k2mps.core import errors
from k2mps.core.objects import FILE_MODE, Entry, Objects
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.series.patch_folder import Series
from k2mps.series.patch_text import FROM, Patch
from k2mps.stack.checkout import Checkout, Commit

# A match in git's messages means that a patch is well formed but does not fit the files.
_MISFIT = re.compile("already exists|does not exist|does not match|patch failed")


class Picked(NamedTuple):
    """The result of applying a change to a tree."""

    tree: str  # the resulting tree; files that conflict have git's markers
    conflicts: Sequence[str]  # the files that conflict


def series_tip(project: Project, checkout: Checkout, pin: Pin, series: Series | None = None) -> str:
    """Makes the commits of the whole series on the pin; returns the id of the last one.

    Args:
      series: the series; None for the series in patches/.
    Raises:
      ConflictError: a patch conflicts; the message names the patch and the files.
    """
    series = series or patch_folder.load(project.patches)
    return commit_patches(checkout, pin, pin.commit, series.patches, series)


def commit_patches(
    checkout: Checkout, pin: Pin, base: str, patches: Sequence[Patch], series: Series
) -> str:
    """Commits patches of `series` on top of the commit `base`.

    Returns the id of the last commit.

    Raises:
      ConflictError: as for `series_tip`.
    """
    objects, date, tip = checkout.objects, commit_date(checkout, pin.commit), base
    tree = checkout.tree_of(base)
    for patch in patches:
        picked = apply_patch(checkout, patch, series, tree)
        if picked.conflicts:
            files = f"conflicts in {errors.some(picked.conflicts)}"
            raise _refusal(errors.ConflictError, patch, files)
        tree = picked.tree
        tip = commit_of_patch(objects, patch, tree, tip, date)
    return tip


def commit_of_patch(objects: Objects, patch: Patch, tree: str, parent: str, date: str) -> str:
    """Commits the tree that a patch has made; returns the commit's id.

    Args:
      date: the date of the committer, and of the author if the patch has no date; see
        `commit_date`.
    """
    author = f"{patch.author} {patch.date or date}"
    return objects.commit(tree, [parent], patch.commit_message(), author, f"{FROM} {date}")


def apply_patch(checkout: Checkout, patch: Patch, series: Series, tree: str) -> Picked:
    """Applies a patch to a tree.

    Raises:
      ConflictError: git refuses the patch, for example because a new file exists already; or
        the blobs that the patch names cannot be found.
      SeriesError: a file that the patch edits does not exist, or the patch is malformed.
    """
    objects = checkout.objects
    objects.load(tree)
    now = objects.staged(patch.edited) if patch.edited else {}
    for path in patch.edited:
        if path not in now:
            reason = f"k2 has no file {path}, or an earlier patch deletes it"
            raise _refusal(errors.SeriesError, patch, reason)
    stale = {
        path: Entry(now[path].mode, id_) for path, id_ in patch.blobs.items() if id_ != now[path].id
    }
    base = tree
    if stale:
        ids = {entry.id for entry in stale.values()}
        if len(objects.blobs(ids)) < len(ids):
            raise _refusal(
                errors.ConflictError,
                patch,
                "it was made for other versions of the files that it edits",
                "git cannot merge it, because this checkout does not have these versions",
                "if git has merged two branches of this repository, check each of them out and run"
                " k2mps apply there; then the same command again",
            )
        objects.stage(stale)
        base = objects.tree()
    result = objects.apply(whole_diff(patch, series))
    if result.status or "Skipped patch" in result.stderr:
        reasons = "; ".join(re.findall(r"^error: (.*)$", result.stderr, re.MULTILINE))
        kind = errors.ConflictError if _MISFIT.search(reasons) else errors.SeriesError
        raise _refusal(kind, patch, reasons or result.stderr)
    theirs = objects.tree()
    if base == tree:
        return Picked(theirs, ())
    root = objects.commit(base, [], "")
    return merged(objects, root, tree, objects.commit(theirs, [root], patch.commit_message()))


def _refusal(
    kind: type[errors.K2mpsError], patch: Patch, reason: str, why: str = "", next_command: str = ""
) -> errors.K2mpsError:
    return kind(
        f"patches/{patch.name}:1: does not apply: {reason}",
        why=why
        or "the pin was moved, k2 or an earlier patch has the same file or changes the same lines,"
        " or the patch was edited by hand",
        next_command=next_command
        or "git log -- upstream.toml patches shows what changed; docs/contributing.md says under"
        ' "Two people\'s patches" how git resolves the conflict',
    )


def whole_diff(patch: Patch, series: Series) -> bytes:
    """Returns a patch's diff together with the diffs that create its new files."""
    return patch.diff + b"".join(
        addition(path, series.files[path].content, series.files[path].mode)
        for path in patch.new_files
    )


def addition(path: str, content: bytes, mode: str = FILE_MODE) -> bytes:
    """Returns the diff, in git's format, that creates a file."""
    head = f"diff --git a/{path} b/{path}\nnew file mode {mode}\n"
    if not content:
        empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
        return os.fsencode(f"{head}index {'0' * 40}..{empty}\n")
    ended = content.endswith(b"\n")
    text = content[:-1] if ended else content
    tab = "\t" if " " in path else ""
    head += f"--- /dev/null\n+++ b/{path}{tab}\n@@ -0,0 +1,{text.count(10) + 1} @@\n+"
    end = b"\n" if ended else b"\n\\ No newline at end of file\n"
    return os.fsencode(head) + text.replace(b"\n", b"\n+") + end


def commit_date(checkout: Checkout, pin: str) -> str:
    """Returns the pin's date, as "SECONDS +0000"; all commits of the series have this date."""
    return checkout.objects.text("show", "--no-patch", "--format=%ct +0000", pin)


def merged(objects: Objects, base: str, ours: str, theirs: str) -> Picked:
    """Merges into the tree `ours` the change from the commit `base` to its child `theirs`."""
    trees = objects.text("rev-parse", f"{base}^{{tree}}", f"{theirs}^{{tree}}").split()
    if trees[0] == ours:
        return Picked(trees[1], ())
    side = objects.commit(ours, [base], "")
    options = "merge-tree --write-tree --no-messages --name-only -z".split()
    result = objects.run(*options, side, theirs)
    if result.status not in (0, 1):
        raise objects.failure(options, result)
    tree, *conflicts = os.fsdecode(result.stdout).rstrip("\0").split("\0")
    return Picked(tree, conflicts)


def pick(objects: Objects, commit: Commit, tree: str) -> Picked:
    """Applies to a tree the difference between a commit and the commit's first parent."""
    return merged(objects, commit.parents[0], tree, commit.id)


def replay(checkout: Checkout, date: str, tip: str, commits: Sequence[Commit]) -> str:
    """Puts commits one after the other onto the commit `tip`; returns the id of the last one.

    Args:
      date: the committer's date of the new commits, see `commit_date`.
    """
    objects, tree = checkout.objects, checkout.tree_of(tip)
    for commit in commits:
        picked = pick(objects, commit, tree)
        if picked.conflicts or picked.tree == tree:
            conflicts = errors.some(picked.conflicts)
            raise errors.K2mpsError(
                f"{commit.subject!r} does not apply any more",
                why=f"it changes the same lines of {conflicts}, or lines next to them"
                if conflicts
                else "it would change nothing any more",
                next_command="change or delete that patch first; or fold the edits into it",
            )
        tree = picked.tree
        author = f"{commit.author} {commit.when}"
        tip = objects.commit(tree, [tip], commit.message, author, f"{FROM} {date}")
    return tip
