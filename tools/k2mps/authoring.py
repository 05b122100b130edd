"""Making, rewording, extending and dropping patches.

What the user sees is files: edits in the checkout become a patch (`new`) or
part of one (`fold`), a patch's words change (`edit`), a patch goes (`drop`).
The commits behind that are made anew without touching the checkout, later ones
by a 3-way merge onto the earlier, and branch, patches/ and lock change
together, or not at all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from typing import Iterator, Optional, Sequence

from k2mps import errors, operations, patchset, series
from k2mps.apply import check_lock
from k2mps.checkout import (
    BASE_REF,
    BRANCH,
    BRANCH_REF,
    Checkout,
    Commit,
    Move,
)
from k2mps.commits import commit_locked
from k2mps.project import Project, exclusive
from k2mps.series import Patch
from k2mps.upstream import Upstream


@dataclasses.dataclass(frozen=True)
class Words:
    """What is to be said of a patch; None leaves it as it is."""

    subject: Optional[str] = None
    body: Optional[str] = None
    status: Optional[str] = None


def new(project: Project, checkout: Checkout, words: Words) -> patchset.Plan:
    """Makes a patch of the checkout's edits, at the end of the series.

    Raises:
      AuthoringRefusedError: there are no edits, or the checkout is not at the
        series.
      ExportRefusedError: they cannot be said as a patch.
    """
    with _Author.at_work(project, checkout) as author:
        tree = author.edited_tree()
        name = patchset.name_for(
            words.subject or "", {patch.name for patch in author.patches}
        )
        patch = Patch(
            name, words.subject or "", words.status or series.DEFAULT_STATUS,
            words.body or "", (), b"", (),
        )
        tip = author.commit(tree, author.tip, patch)
        return author.finish(f"new {name}", tip, stage=True)


def fold(project: Project, checkout: Checkout, name: str) -> patchset.Plan:
    """Makes the checkout's edits a part of a patch.

    Raises:
      AuthoringRefusedError: they do not fit into that patch, or there are
        none.
    """
    with _Author.at_work(project, checkout) as author:
        at = author.find(name)
        tree = author.edited_tree()
        edits = author.diff(author.tip, tree)
        own = author.commits[at]
        parent = author.parent(at)
        folded = author.apply(own.id, edits)
        if folded is None:
            raise errors.AuthoringRefusedError(
                f"the edits cannot become part of {author.patches[at].name}",
                why="they are in lines or files that a later patch changes"
                " or adds",
                next_command="k2mps fold into that patch, or k2mps new",
            )
        tip = author.commit(folded, parent, author.patches[at])
        tip = author.replay(tip, at + 1)
        if checkout.tree_of(tip) != tree:
            raise errors.AuthoringRefusedError(
                f"with the edits in {author.patches[at].name} the series"
                " gives other files than those of the checkout",
                why="a later patch changes lines next to them",
                next_command="k2mps fold into that patch, or k2mps new",
            )
        return author.finish(f"fold {author.patches[at].name}", tip,
                             stage=True)


def edit(
    project: Project, checkout: Checkout, name: str, words: Words
) -> patchset.Plan:
    """Changes what a patch says of itself."""
    with _Author.at_work(project, checkout) as author:
        at = author.find(name)
        old = author.patches[at]
        patch = dataclasses.replace(
            old,
            subject=old.subject if words.subject is None else words.subject,
            body=old.body if words.body is None else words.body,
            status=old.status if words.status is None else words.status,
        )
        tree = checkout.tree_of(author.commits[at].id)
        tip = author.commit(tree, author.parent(at), patch)
        tip = author.replay(tip, at + 1)
        return author.finish(f"edit {old.name}", tip)


def drop(project: Project, checkout: Checkout, name: str) -> patchset.Plan:
    """Takes a patch out of the series and its changes out of the checkout.

    Raises:
      AuthoringRefusedError: a later patch builds on it.
      DirtyCheckoutError: the checkout has edits.
    """
    with _Author.at_work(project, checkout) as author:
        at = author.find(name)
        edited = checkout.edited_files()
        if edited:
            raise errors.DirtyCheckoutError(
                f"{checkout.directory} has uncommitted edits in"
                f" {', '.join(edited[:3])}",
                next_command="k2mps new or k2mps fold, or git stash",
            )
        tip = author.replay(author.parent(at), at + 1)
        return author.finish(f"drop {author.patches[at].name}", tip,
                             move=True)


def parse_words(text: str) -> Words:
    """What was written in an editor: the subject, the status, the body.

    Raises:
      AuthoringRefusedError: it has not that shape.
    """
    parts = [part.strip("\n") for part in text.strip("\n").split("\n\n", 2)]
    if len(parts) < 2 or not parts[1].startswith("Upstream-Status: "):
        raise errors.AuthoringRefusedError(
            "the text must be a subject, an empty line, Upstream-Status: and"
            " its value, an empty line, and the body",
            next_command="run the same command again",
        )
    subject = " ".join(parts[0].split())
    status = parts[1].partition(": ")[2].strip()
    return Words(subject, parts[2] if len(parts) > 2 else "", status)


def words_of(project: Project, name: str) -> Patch:
    """The patch as it is in patches/."""
    found = series.load(project.patches)
    for patch in found.patches:
        if name in (patch.name, patch.name.removesuffix(".patch")):
            return patch
    raise _unknown(name, [patch.name for patch in found.patches])


class _Author:
    """The series as commits in a checkout, to be made anew in part.

    They are made from patches/, whatever the branch calls its own: what a
    patch is called and where it stands is for patches/ to say.

    Attributes:
      patches, commits: the series, in order.
      tip: its last commit, or the pin.
    """

    def __init__(
        self, project: Project, checkout: Checkout, pinned: Upstream
    ):
        self._project = project
        self._checkout = checkout
        self._pin = pinned.pin
        found = series.load(project.patches)
        check_lock(pinned, found)
        self.patches = found.patches
        self._check_at_series(pinned)
        self.tip = commit_locked(checkout, pinned, found)
        self.commits = checkout.commits(f"{self._pin.commit}..{self.tip}")
        date = checkout.git.text(
            "log", "-1", "--format=@%ct +0000", self._pin.commit
        )
        self._dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}

    @staticmethod
    @contextlib.contextmanager
    def at_work(project: Project, checkout: Checkout) -> Iterator["_Author"]:
        """Holds off other runs meanwhile."""
        with exclusive(project.root, str(project.root)):
            operations.recover(project)
            operations.check_no_rebase(project)
            with checkout.exclusive():
                checkout.recover()
                yield _Author(project, checkout, project.upstream())

    def _check_at_series(self, pinned: Upstream) -> None:
        """Refuses a checkout whose commits give other files than patches/, or
        are the user's.

        Raises:
          AuthoringRefusedError: it is one.
        """
        checkout = self._checkout
        operation = checkout.operation_in_progress()
        head = checkout.head()
        if operation:
            raise errors.DirtyCheckoutError(
                f"{checkout.directory} has {operation} in progress",
                next_command=f"git -C {checkout.directory} status",
            )
        users = head.branch == BRANCH_REF and checkout.unexported(
            pinned.pin.commit, head.commit
        )
        if (
            users
            or head.branch != BRANCH_REF
            or head.tree != pinned.lock.tree
        ):
            raise errors.AuthoringRefusedError(
                f"{checkout.directory} is not at the series",
                why=f"branch {BRANCH} has commits that are not in patches/"
                if users else f"it is not on branch {BRANCH} with patches/ as"
                " locked",
                next_command="k2mps export" if users else "k2mps apply",
            )

    def find(self, name: str) -> int:
        """Where in the series a patch stands."""
        names = [patch.name for patch in self.patches]
        for candidate in (name, f"{name}.patch"):
            if candidate in names:
                return names.index(candidate)
        raise _unknown(name, names)

    def parent(self, at: int) -> str:
        """The commit before a patch's."""
        return self.commits[at].parents[0]

    def edited_tree(self) -> str:
        """The tree of the checkout's files, new ones included.

        Raises:
          AuthoringRefusedError: nothing was edited.
        """
        checkout = self._checkout
        with checkout.scratch_index() as index:
            # With what the index knows of the files only edits are read.
            shutil.copy2(checkout.git_dir / "index", index.index)
            index.bytes("add", "--all", work_tree=True)
            tree = index.text("write-tree")
        if tree == checkout.tree_of(self.tip):
            raise errors.AuthoringRefusedError(
                f"nothing was edited in {checkout.directory}",
                next_command="edit files there, then run the same command"
                " again",
            )
        return tree

    def diff(self, old: str, new: str) -> bytes:
        """What leads from one tree to another."""
        return self._checkout.git.bytes(
            "diff-tree", "-r", "-p", "--full-index", "--binary",
            "--no-renames", "-U3", old, new,
        )

    def apply(self, commit: str, diff: bytes) -> Optional[str]:
        """A commit's tree with a diff; None if it does not fit."""
        with self._checkout.scratch_index() as index:
            index.bytes("read-tree", commit)
            if not index.succeeds("apply", "--cached", "--3way", "-",
                                  stdin=diff):
                return None
            return index.text("write-tree")

    def commit(self, tree: str, parent: str, patch: Patch) -> str:
        """Commits a tree as a patch."""
        return self._checkout.git.text(
            "commit-tree", tree, "-p", parent,
            stdin=os.fsencode(patch.commit_message()),
            environment=self._dates,
        )

    def replay(self, tip: str, start: int) -> str:
        """Puts the patches from `start` on onto a commit.

        Raises:
          AuthoringRefusedError: one of them does not fit.
        """
        for commit, patch in zip(self.commits[start:], self.patches[start:]):
            tip = self.commit(self._moved(tip, commit, patch), tip, patch)
        return tip

    def _moved(self, tip: str, commit: Commit, patch: Patch) -> str:
        checkout = self._checkout
        parent = commit.parents[0]
        if checkout.tree_of(tip) == checkout.tree_of(parent):
            return checkout.tree_of(commit.id)
        tree = self.apply(tip, self.diff(parent, commit.id))
        if tree is None or tree == checkout.tree_of(tip):
            raise errors.AuthoringRefusedError(
                f"patches/{patch.name} builds on that",
                why="it changes the same lines, or lines next to them",
                next_command=f"change or drop {patch.name} first",
            )
        return tree

    def finish(
        self, command: str, tip: str, stage: bool = False, move: bool = False
    ) -> patchset.Plan:
        """Writes patches/ and moves the branch.

        Args:
          command: for the log.
          stage: the checkout's edits are in `tip`, and git is to know.
          move: the checkout's files are to become those of `tip`.
        """
        checkout = self._checkout
        commits = checkout.commits(f"{self._pin.commit}..{tip}")
        plan = patchset.plan(self._project, checkout, commits)
        if not plan.changed and not plan.removed:
            return plan
        refs = {BRANCH_REF: tip, BASE_REF: tip}
        operation = operations.record(
            self._project, checkout, command, staged=stage
        )
        if stage:
            # A kill after this leaves the edits staged, and nothing more.
            checkout.git.bytes("add", "--all", work_tree=True)
        operations.carry_out(
            self._project, checkout, operation,
            changed=plan.changed, removed=plan.removed,
            move=Move(tip, BRANCH_REF, refs) if move else Move.stay(refs),
            reason=command,
        )
        return plan


def _unknown(
    name: str, names: Sequence[str]
) -> errors.AuthoringRefusedError:
    return errors.AuthoringRefusedError(
        f"there is no patch {name}",
        why=f"the patches are {', '.join(names)}",
    )
