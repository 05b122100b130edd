"""Makes the commits of the series with git's plumbing commands, which change no checked-out file.

The author of a commit is the author of its patch.  The committer is fixed, and the committer's date
is the date of the pinned commit.  So a commit's id depends only on the pin and on patches/.

A patch names a blob id for each file before and after its edit.  If the files before the edit have
these ids, and the patch's lines give blobs with the ids after the edit, `Line` adds the commit to
the input of one `git fast-import`.  The same holds for a commit that `replay` moves, if the files
that it changes are as they were below it.  Otherwise `apply_diff` or `pick` makes a tree, which
takes several git processes.  If the files do not have the ids, git merges; the base of the merge
is the blobs that the patch names.
"""

import functools
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from k2mps.core import errors
from k2mps.core.objects import (
    EXECUTABLE_MODE,
    TREE_MODE,
    Entry,
    File,
    Objects,
    folders_of,
    importable,
)
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.series import patch_folder, patch_text
from k2mps.series.hunks import edited
from k2mps.series.patch_folder import Series
from k2mps.series.patch_text import FROM, Patch
from k2mps.stack.checkout import Checkout, Commit
from k2mps.stack.extraction import name_of

# A match in git's messages means that a patch is well formed but does not fit the files.
_MISFIT = re.compile("does not exist|does not match|patch failed")


class Picked(NamedTuple):
    """The result of applying a change to a tree."""

    tree: str  # the resulting tree; files that conflict have git's markers
    conflicts: tuple[str, ...]  # the files that conflict


def series_tip(project: Project, checkout: Checkout, pin: Pin) -> str:
    """Makes the commits of the whole series on the pin; returns the id of the last one.

    Raises:
      ConflictError: a patch conflicts; the message names the patch and the files.
    """
    series = patch_folder.load(project.patches)
    return commit_patches(checkout, pin, pin.commit, series.patches, series)


def commit_patches(
    checkout: Checkout, pin: Pin, base: str, patches: Sequence[Patch], series: Series
) -> str:
    """Commits patches of `series` on top of the commit `base`.

    Returns the id of the last commit.

    Raises:
      ConflictError: as for `series_tip`.
    """
    date = commit_date(checkout, pin.commit)
    line = Line(checkout, base, date)
    edits = [edit for patch in patches for edit in patch.edits]
    # `_edited` adds the files that the patches make.  After a patch that git has merged, a later
    # patch may need another blob.
    made = {edit.new_id for edit in edits}
    contents = checkout.objects.blobs(edit.old_id for edit in edits if edit.old_id not in made)
    for patch in patches:
        missing = {edit.old_id for edit in patch.edits} - {"", *contents}
        contents |= checkout.objects.blobs(missing) if missing else {}
        files: dict[str, File | Entry | None] = {
            path: series.files[path] for path in patch.new_files
        }
        deleted = [edit.path for edit in patch.edits if not edit.new_mode]
        if path := line.taken(files, deleted):
            raise _refusal(errors.ConflictError, patch, f"{path} exists already, or is in the way")
        contents |= {file.entry.id: file.content for file in files.values()}
        edited_files = _edited(patch, line.entries, contents)
        if edited_files is None:
            picked = apply_diff(checkout, patch, checkout.tree_of(line.tip()))
            if picked.conflicts:
                reason = f"conflicts in {errors.some(picked.conflicts)}"
                raise _refusal(errors.ConflictError, patch, reason)
            edited_files = {"": Entry(TREE_MODE, picked.tree)}
        files |= edited_files
        when = patch_text.raw_date(patch.date) if patch.date else date
        line.commit(files, patch.commit_message(), f"{patch.author} {when}")
    return line.tip()


class Line:
    """Makes commits, one on top of the other; one git process makes them all at the end.

    Args:
      tip: the commit on which the first of the commits stands.
      date: the committer's date, see `commit_date`.
    """

    def __init__(self, checkout: Checkout, tip: str, date: str):
        self._objects = checkout.objects
        self._tip = tip
        self._date = date
        self._waiting: list[bytes] = []  # commits that are not made yet
        self._read_entries()

    def _read_entries(self) -> None:
        """Reads the files and folders of the last commit."""
        self.entries = self._objects.entries(self._tip)
        # Many files share a folder, so the parts of each folder's path are found only once.
        parents = {path.rpartition("/")[0] for path in self.entries if "/" in path}
        self._folders = {folder for parent in parents for folder in folders_of(f"{parent}/")}

    def taken(self, added: Iterable[str], deleted: Collection[str]) -> str:
        """Returns the first of the paths `added` that is not free; empty if all are.

        Args:
          deleted: the files that the same commit deletes.
        """
        kept = self.entries.keys() - deleted if deleted else self.entries
        for path in added:
            if path in kept or any(folder in kept for folder in folders_of(path)):
                return path
            if path in self._folders and any(other.startswith(f"{path}/") for other in kept):
                return path
        return ""

    def commit(self, changes: Mapping[str, File | Entry | None], message: str, author: str) -> None:
        """Adds a commit.

        Args:
          changes: the files that the commit changes, see `importable`.
          author: "NAME <EMAIL> SECONDS ZONE".
        """
        committer = f"{FROM} {self._date}"
        start = "" if self._waiting else self._tip
        self._waiting.append(importable(start, changes, message, author, committer))
        if "" in changes:
            self.tip()
            self._read_entries()
            return
        for path, new in changes.items():
            self._folders.update(folders_of(path))
            if new:
                self.entries[path] = new.entry if isinstance(new, File) else new
            else:
                self.entries.pop(path)

    def tip(self) -> str:
        """Returns the id of the last commit."""
        if self._waiting:
            self._tip = self._objects.import_commits(self._waiting)
            self._waiting = []
        return self._tip


def _edited(
    patch: Patch, entries: Mapping[str, Entry], contents: dict[str, bytes]
) -> dict[str, File | None] | None:
    """Returns the files that a patch edits; None stands for a deleted file.

    Args:
      entries: the files before the patch.
      contents: the contents of blobs by id; this function adds the edited files.
    Returns:
      The files; or None if git must apply the patch.
    """
    files: dict[str, File | None] = {}
    for edit in patch.edits:
        old = entries.get(edit.path)
        old_id = edit.old_id or (old.id if old else "")
        if old != Entry(edit.old_mode, old_id) or old_id not in contents:
            return None
        hunks = [hunk for hunk in patch.hunks if hunk.path == edit.path]
        file = File(edited(contents[old_id], hunks), edit.new_mode == EXECUTABLE_MODE)
        if edit.new_mode and file.entry.id == (edit.new_id or old_id):
            files[edit.path] = file
            contents[file.entry.id] = file.content
        elif not edit.new_mode and not file.content:
            files[edit.path] = None
        else:
            return None
    return files


def apply_diff(checkout: Checkout, patch: Patch, tree: str) -> Picked:
    """Applies a patch, without its new files, to a tree.

    Raises:
      ConflictError: git refuses the patch, or the blobs that the patch names cannot be found.
      SeriesError: a file that the patch edits does not exist, or the patch is malformed.
    """
    objects = checkout.objects
    objects.load(tree)
    now = objects.entries(tree, patch.edited)
    for path in patch.edited:
        if path not in now:
            reason = f"k2 has no file {path}, or an earlier patch deletes it"
            raise _refusal(errors.SeriesError, patch, reason)
    stale = {
        edit.path: Entry(now[edit.path].mode, edit.old_id)
        for edit in patch.edits
        if edit.old_id not in ("", now[edit.path].id)
    }
    base = tree
    if stale:
        ids = {entry.id for entry in stale.values()}
        if len(objects.blobs(ids)) < len(ids):
            raise _refusal(
                errors.ConflictError,
                patch,
                "it was made for other versions of the files that it edits",
                "this checkout does not have these versions, so git cannot merge it; patches/ was"
                " edited by hand without k2mps export, or git has merged two branches",
                "check out the commit of this repository before that edit, or each of the branches,"
                " and run k2mps apply there; then the same command again, and k2mps export",
            )
        objects.stage(stale)
        base = objects.tree()
    result = objects.apply(patch.diff)
    if result.status or "Skipped patch" in result.stderr:
        reasons = "; ".join(re.findall(r"^error: (.*)$", result.stderr, re.MULTILINE))
        kind = errors.ConflictError if _MISFIT.search(reasons) else errors.SeriesError
        raise _refusal(kind, patch, reasons or result.stderr)
    theirs = objects.tree()
    if base == tree:
        return Picked(theirs, ())
    root = objects.commit(base, "", "")
    return merged(objects, root, tree, objects.commit(theirs, root, patch.commit_message()))


def _refusal(
    kind: type[errors.K2mpsError], patch: Patch, reason: str, why: str = "", next_command: str = ""
) -> errors.K2mpsError:
    """Returns the error for a patch that does not apply.

    Args:
      kind: the class of the error.
      reason: why the patch does not apply, for the first line.
      why, next_command: see `K2mpsError`; empty for what is right for most patches.
    """
    return kind(
        f"patches/{patch.name}:1: does not apply: {reason}",
        why=why
        or "the pin was moved, k2 or an earlier patch has the same file or changes the same lines,"
        " or the patch was edited by hand",
        next_command=next_command
        or "git log -- upstream.toml patches shows what changed; docs/contributing.md says under"
        ' "Two people\'s patches" how git resolves the conflict',
    )


@functools.cache
def commit_date(checkout: Checkout, pin: str) -> str:
    """Returns the pin's date, as "SECONDS +0000"; all commits of the series have this date."""
    return checkout.objects.text("show", "--no-patch", "--format=%ct +0000", pin)


def merged(objects: Objects, base: str, ours: str, theirs: str) -> Picked:
    """Merges into the tree `ours` the change from the commit `base` to its child `theirs`."""
    trees = objects.text("rev-parse", f"{base}^{{tree}}", f"{theirs}^{{tree}}")
    tree_of_base, tree_of_theirs = trees.split()
    if tree_of_base == ours:
        return Picked(tree_of_theirs, ())
    side = objects.commit(ours, base, "")
    command = ("merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", side, theirs)
    result = objects.run(*command)
    if result.status not in (0, 1):
        raise objects.failure(command, result)
    tree, *conflicts = os.fsdecode(result.stdout).rstrip("\0").split("\0")
    return Picked(tree, tuple(conflicts))


def pick(objects: Objects, commit: Commit, tree: str) -> Picked:
    """Applies to a tree the difference between a commit and the commit's first parent."""
    return merged(objects, commit.parents[0], tree, commit.id)


def replay(checkout: Checkout, date: str, tip: str, commits: Sequence[Commit]) -> str:
    """Puts commits one after the other onto the commit `tip`; returns the id of the last one.

    Args:
      date: the committer's date of the new commits, see `commit_date`.
    """
    line = Line(checkout, tip, date)
    changes_by_id = checkout.changes_of(commits)
    for commit in commits:
        changes = changes_by_id[commit.id]
        added = [change.path for change in changes if not change.old]
        deleted = [change.path for change in changes if not change.new]
        files = {change.path: change.new for change in changes}
        unchanged = all(line.entries.get(change.path) == change.old for change in changes)
        if not unchanged or line.taken(added, deleted):
            picked = pick(checkout.objects, commit, checkout.tree_of(line.tip()))
            if picked.conflicts:
                files_in_conflict = errors.some(picked.conflicts)
                raise errors.K2mpsError(
                    f"{name_of(commit) or commit} does not apply any more",
                    why=f"it changes the same lines of {files_in_conflict}, or lines next to them",
                    next_command="change or delete that patch first; or fold the edits into it",
                )
            files = {"": Entry(TREE_MODE, picked.tree)}
        line.commit(files, commit.message, f"{commit.author} {commit.when}")
    return line.tip()
