"""Applying the series: the same commits on every machine, or no change.

The commits are made in a workspace of their own (an index file that is thrown
away, objects that nothing refers to yet), so that nothing of the user's is
touched until every patch has applied and the resulting tree is the one that
upstream.toml locks.  Then the checkout moves there as one transaction.

A commit's author, committer and dates are fixed (the dates are the pin's), so
its id depends on the pin and on patches/ only.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Mapping, Optional, Sequence

from k2mps import errors, git, hunks, objects, operations, status
from k2mps.checkout import BRANCH, BRANCH_REF, Checkout, Move
from k2mps.project import Project
from k2mps.series import (
    EXECUTABLE_MODE,
    FILE_MODE,
    FROM,
    Edit,
    Patch,
    Series,
    load,
)
from k2mps.status import State, Status
from k2mps.upstream import Pin, Upstream


@dataclasses.dataclass(frozen=True)
class Applied:
    """What `apply` did.

    Attributes:
      tip: the commit of branch k2-mps.
      written: paths of the checkout that were written or removed; empty
        where it was applied already.
    """

    tip: str
    written: tuple[str, ...]


def apply(project: Project, upstream: Upstream, checkout: Checkout) -> Applied:
    """Applies the series to a checkout.

    Whatever is raised, the checkout is as before.

    Raises:
      LockMismatchError, SeriesError: patches/ is not what is locked.
      DirtyCheckoutError, WrongCommitError, UserCommitsError,
      ObstructedError, BranchElsewhereError, BusyError: the checkout is in no
        state to be moved.
      PatchConflictError, TreeMismatchError: the series does not give the
        locked tree.
      DiskFullError: there was no space.
    """
    found = load(project.patches)
    check_lock(upstream, found)
    with checkout.exclusive():
        checkout.recover()
        now = status.of_checkout(project, upstream, checkout, ())
        if now.state is State.APPLIED:
            return Applied(now.head.commit, ())
        _check_movable(upstream, checkout, now)
        tip = commit_series(checkout, upstream.pin, found)
        tree = checkout.tree_of(tip)
        if tree != upstream.lock.tree:
            raise errors.TreeMismatchError(
                f"the series gives the tree {tree}, but upstream.toml locks"
                f" {upstream.lock.tree}",
                why="the lock was edited or merged by hand",
                next_command="k2mps lock",
            )
        if tip == now.head.commit:
            return Applied(tip, ())
        log = operations.record(
            project, checkout, "apply", BRANCH_REF, head=now.head
        )
        written = checkout.move_to(Move.of_series(tip, log), "apply")
    return Applied(tip, tuple(written))


def check_lock(upstream: Upstream, found: Series) -> None:
    """Refuses patches that are not the locked ones.

    Raises:
      LockMismatchError: names each difference.
    """
    differences = upstream.lock.differences(found.lock)
    if differences:
        raise errors.LockMismatchError(
            "patches/ is not what upstream.toml locks",
            why="; ".join(differences),
            next_command="k2mps lock, if the change is meant; else git"
            " checkout patches upstream.toml",
        )


def commit_series(checkout: Checkout, pin: Pin, found: Series) -> str:
    """Makes the commits of the series; changes no ref and no file.

    The caller holds the checkout's `exclusive`.

    Returns:
      The id of the last commit; the pin where the series is empty.
    Raises:
      PatchConflictError: names the patch, the file and the hunk.
    """
    tip = _commit_exactly(checkout, pin, found)
    if tip:
        return tip
    with checkout.scratch_index() as index:
        workspace = _Workspace(checkout, index, pin)
        blobs = workspace.write_blobs(found)
        for patch in found.patches:
            workspace.commit(patch, found, blobs)
        return workspace.tip


def _commit_exactly(
    checkout: Checkout, pin: Pin, found: Series
) -> Optional[str]:
    """Makes the commits where every patch fits to the byte.

    That is so for a series that was exported: each edit takes the blob that
    its patch names to the blob that its patch names.  Any other series is
    left to git, which places its hunks or says why it cannot.

    Returns:
      The id of the last commit, or None.
    """
    repository = checkout.git
    tree = objects.Tree.of(repository, pin.commit)
    first = (
        edit.old_id for patch in found.patches for edit in patch.edits
    )
    blobs = objects.read_blobs(repository, filter(None, first))
    store = objects.Store()
    date = repository.text("log", "-1", "--format=%ct +0000", pin.commit)
    tip = pin.commit
    for patch in found.patches:
        by_path: dict[str, list[hunks.Hunk]] = {}
        for hunk in hunks.split(patch.diff):
            by_path.setdefault(hunk.path, []).append(hunk)
        for edit in patch.edits:
            of_file = by_path.get(edit.path, [])
            if not _edit_exactly(tree, store, blobs, edit, of_file):
                return None
        for path in patch.new_files:
            if not _is_free(tree, path):
                return None
            file = found.files[path]
            blob = store.add("blob", file.source.read_bytes())
            tree.set(path, file.mode, blob)
        message = patch.commit_message()
        who = f"{FROM} {date}"
        tip = store.add(
            "commit",
            os.fsencode(
                f"tree {tree.write(store)}\nparent {tip}\nauthor {who}\n"
                f"committer {who}\n\n{message}"
            ),
        )
    store.write(repository)
    return tip


def _edit_exactly(
    tree: objects.Tree,
    store: objects.Store,
    blobs: dict[str, bytes],
    edit: Edit,
    of_file: Sequence[hunks.Hunk],
) -> bool:
    """Does one edit, if it fits to the byte."""
    before = tree.get(edit.path)
    if not before or before[0] not in (FILE_MODE, EXECUTABLE_MODE):
        return False
    mode, blob = before
    if edit.old_mode not in (None, mode) or edit.old_id not in (None, blob):
        return False
    if edit.deletes:
        tree.remove(edit.path)
        return True
    if edit.new_id:
        text = blobs.get(blob)
        new = None if text is None else hunks.apply_all(text, of_file)
        if new is None or objects.object_id("blob", new) != edit.new_id:
            return False
        blob = store.add("blob", new)
        blobs[blob] = new
    tree.set(edit.path, edit.new_mode or mode, blob)
    return True


def _is_free(tree: objects.Tree, path: str) -> bool:
    """Whether a new file can be there: neither it nor a file above it is."""
    parts = path.split("/")
    above = (tree.get("/".join(parts[:end])) for end in range(1, len(parts)))
    return tree.get(path) is None and all(
        one is None or one[0] == "040000" for one in above
    )


class _Workspace:
    """An index of its own, in which the series is built up from the pin."""

    def __init__(self, checkout: Checkout, index: git.Git, pin: Pin):
        self._git = index
        self._git.bytes("read-tree", pin.commit)
        self._files = checkout.files_of(pin.commit)
        date = self._git.text("log", "-1", "--format=@%ct +0000", pin.commit)
        self._dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        self.tip = pin.commit

    def write_blobs(self, found: Series) -> Mapping[str, str]:
        """Stores all new files, byte for byte; their blob ids by path."""
        if not found.files:
            return {}
        sources = "".join(
            f"{file.source}\n" for file in found.files.values()
        )
        ids = self._git.text(
            "hash-object", "-w", "--no-filters", "--stdin-paths",
            stdin=os.fsencode(sources),
        )
        return dict(zip(found.files, ids.split("\n")))

    def commit(self, patch: Patch, found: Series, blobs) -> None:
        """Adds one patch with its new files as one commit."""
        if patch.diff:
            result = self._git.run("apply", "--cached", "-", stdin=patch.diff)
            if result.status != 0:
                raise _conflict(patch, result.stderr)
        self._check_free(patch)
        if patch.new_files:
            entries = "".join(
                f"{found.files[path].mode} {blobs[path]}\t{path}\0"
                for path in patch.new_files
            )
            self._git.bytes("update-index", "-z", "--index-info",
                            stdin=os.fsencode(entries))
        tree = self._git.text("write-tree")
        self.tip = self._git.text(
            "commit-tree", tree, "-p", self.tip,
            stdin=os.fsencode(patch.commit_message()),
            environment=self._dates,
        )

    def _check_free(self, patch: Patch) -> None:
        """Refuses a new file where upstream has a file or a link."""
        for path in patch.new_files:
            parts = path.split("/")
            for end in range(1, len(parts) + 1):
                place = "/".join(parts[:end])
                if place in self._files:
                    raise errors.PatchConflictError(
                        f"patches/{patch.name} adds {path}, but k2 has"
                        f" {place}",
                        why="upstream has added it, or a patch adds what it"
                        " should edit",
                        next_command=f"rename patches/files/{path}, or make"
                        " it an edit",
                    )


def _conflict(patch: Patch, stderr: str) -> errors.PatchConflictError:
    """Tells which hunk of which file git could not place."""
    places = []
    lines = []
    for path, line in re.findall(
        r"^error: patch failed: (.*):(\d+)$", stderr, re.MULTILINE
    ):
        of_file = [h for h in hunks.split(patch.diff) if h.path == path]
        for number, hunk in enumerate(of_file, start=1):
            if hunk.old_start == int(line):
                places.append(
                    f"hunk {number} of {len(of_file)} of {path} (line {line})"
                )
                lines.append(patch.diff_line + hunk.line - 1)
    for path in re.findall(
        r"^error: (.*): does not exist in index$", stderr, re.MULTILINE
    ):
        places.append(f"{path}, which k2 does not have")
    return errors.PatchConflictError(
        f"patches/{patch.name}:{lines[0] if lines else 1}: does not apply: "
        + ("; ".join(places) or stderr),
        why="the pin was moved, an earlier patch of the series changes the"
        " same lines, or the patch was edited by hand",
        next_command="git log -- upstream.toml patches, to see what changed;"
        " git checkout patches upstream.toml brings the locked series back",
    )


def _check_movable(
    upstream: Upstream, checkout: Checkout, now: Status
) -> None:
    """Refuses a checkout that holds anything that moving it would hide."""
    where = checkout.directory
    operation = checkout.operation_in_progress()
    if operation or now.edited_files:
        raise errors.DirtyCheckoutError(
            f"{where} has {operation} in progress" if operation else
            f"{where} has uncommitted edits",
            why="; ".join(now.details),
            next_command=f"git -C {where} status; finish, commit or stash"
            " that, then run the same command again",
        )
    if now.user_commits:
        raise errors.UserCommitsError(
            f"{where} has commits of yours on top of k2",
            why="; ".join(now.user_commits),
            next_command="k2mps export, to make patches of them; or git -C"
            f" {where} checkout {upstream.pin.commit}, to leave them where"
            " they are",
        )
    if now.state is State.OTHER_COMMIT and not _left_by_us(checkout):
        raise errors.WrongCommitError(
            f"{where} is at commit {now.head.commit[:12]}, the series is for"
            f" {upstream.pin.commit[:12]} (k2 {upstream.pin.version})",
            next_command=f"git -C {where} checkout {upstream.pin.commit}",
        )
    _check_branch(checkout, upstream)


def _left_by_us(checkout: Checkout) -> bool:
    """Whether this is the tool's own clone, at a commit of upstream's: an
    earlier pin, which nobody loses when it moves on."""
    return checkout.own and bool(
        checkout.git.text("for-each-ref", "--count=1", "--contains", "HEAD",
                          "refs/remotes")
    )


def _check_branch(checkout: Checkout, upstream: Upstream) -> None:
    """Refuses a branch k2-mps that is in use or holds the user's work."""
    elsewhere = checkout.other_worktree_on_branch()
    if elsewhere:
        raise errors.BranchElsewhereError(
            f"branch {BRANCH} is checked out in {elsewhere}",
            why="two worktrees cannot share a branch",
            next_command="use that worktree, or a clone of its own",
        )
    tip = checkout.branch_tip()
    users = checkout.unexported(upstream.pin.commit, tip) if tip else []
    if users:
        raise errors.UserCommitsError(
            f"branch {BRANCH} of {checkout.directory} has commits of yours",
            why="moving the branch would leave them without a name: "
            + "; ".join(f"{commit.id[:12]} {commit.subject}"
                        for commit in users),
            next_command=f"git -C {checkout.directory} branch -m {BRANCH}"
            f" my-{BRANCH}; or check the branch out and k2mps export",
        )
