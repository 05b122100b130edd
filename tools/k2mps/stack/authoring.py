"""The commands that change one patch: new, fold, edit, rename, move, drop.

Each command makes a new commit of the patch, and moves the later commits onto it by 3-way
merges.  The checkout stays as it is meanwhile.  Then branch, patches/ and lock change
together, or not at all.
"""

import contextlib
import dataclasses
import email.utils
import functools
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from k2mps.core import errors, git
from k2mps.core.project import Project
from k2mps.series import patch_text, series_file
from k2mps.series.patch_text import Patch
from k2mps.stack import extraction, operations
from k2mps.stack.apply import locked
from k2mps.stack.checkout import BASE_REF, BRANCH, BRANCH_REF, Author, Checkout, Move
from k2mps.stack.commits import changed, commit_date, commit_series, moved

# The header of a patch, by the names of the fields of `Patch`; None keeps what the patch has.
Words = Mapping[str, str | None]


@contextlib.contextmanager
def at_work(project: Project, checkout: Checkout) -> Iterator["CommittedSeries"]:
    """The series, which no other run changes during the context."""
    with operations.at_work(project, checkout):
        yield CommittedSeries(project, checkout)


class CommittedSeries:
    """The series as commits, some of which a command makes anew.

    The commits come from patches/, which decides on names and order, not from the branch.
    """

    def __init__(self, project: Project, checkout: Checkout):
        pinned = project.upstream()
        self._project = project
        self._checkout = checkout
        self._pin = pinned.pin
        self._series = locked(project, pinned)
        self._patches = self._series.patches
        checkout.check_at_rest(edits_too=False)
        head = checkout.head()
        on_branch = head.branch == BRANCH_REF
        unexported = on_branch and checkout.unexported(self._pin.commit, head.commit)
        self._tip = commit_series(checkout, self._pin, self._series).tip
        if unexported or not on_branch or head.tree != checkout.tree_of(self._tip):
            raise errors.K2mpsError(
                f"{checkout.directory} does not have the series applied",
                why=f"branch {BRANCH} has commits that are not in patches/"
                if unexported
                else f"it is not on branch {BRANCH} with patches/ as locked",
                next_command="k2mps export" if unexported else "k2mps apply",
            )
        self._commits = checkout.commits(f"{self._pin.commit}..{self._tip}")
        self._date = commit_date(checkout, self._pin.commit)

    def new(self, words: Words, paths: Sequence[str] = ()) -> extraction.Plan:
        """Makes a patch of the checkout's edits, at the end of the series.

        The default author is the user, as git knows them.

        Args:
          paths: untracked files and directories that become part of the patch.
        """
        user = "{} <{}>".format(*self._checkout.user())
        who = user if patch_text.AUTHOR.fullmatch(user) else patch_text.FROM
        empty = Patch("", "", patch_text.DEFAULT_STATUS, "", (), b"", ())
        patch = _worded(empty, {**words, "author": words["author"] or who})
        tree = self._edited_tree(paths)
        name = extraction.name_for(patch.subject, {patch.name for patch in self._patches})
        tip = self._commit(tree, self._tip, dataclasses.replace(patch, name=name))
        return self._finish(f"new {name}", tip, stage=paths)

    def fold(self, name: str, paths: Sequence[str] = ()) -> extraction.Plan:
        """Adds the checkout's edits to a patch."""
        at = self._find(name)
        patch = self._patches[at]
        tree = self._edited_tree(paths)
        folded = changed(self._checkout, self._commits[at].id, self._tip, tree)
        tip = folded and self._remade(at, patch, folded)
        if not tip or self._checkout.tree_of(tip) != tree:
            raise errors.K2mpsError(
                f"the edits cannot become part of {patch.name}",
                why="a later patch changes or adds these lines or files, or lines next to them",
                next_command="k2mps fold into that patch, or k2mps new",
            )
        return self._finish(f"fold {patch.name}", tip, stage=paths)

    def edit(self, name: str, words: Words) -> extraction.Plan:
        """Changes the header of a patch."""
        at = self._find(name)
        old = self._patches[at]
        return self._finish(f"edit {old.name}", self._remade(at, _worded(old, words)))

    def rename(self, name: str, to: str) -> extraction.Plan:
        """Gives a patch another file name."""
        to = f"{to.removesuffix('.patch')}.patch"
        series_file.check_name(to, "rename")
        at = self._find(name)
        old = self._patches[at]
        if to in {patch.name for patch in self._patches}:
            raise errors.K2mpsError(
                f"there is a patch {to} already", next_command="choose another name"
            )
        tip = self._remade(at, dataclasses.replace(old, name=to))
        return self._finish(f"rename {old.name} {to}", tip)

    def move(self, name: str, anchor: str, after: bool = False) -> extraction.Plan:
        """Gives a patch the place before another one or, with `after`, behind it."""
        at, other = self._find(name), self._find(anchor)
        if at == other:
            raise errors.K2mpsError(
                f"{anchor} is the patch itself", next_command="name another patch"
            )
        order = [*range(len(self._patches))]
        order.remove(at)
        order.insert(order.index(other) + after, at)
        start = min(at, order.index(at))
        tip = self._replay(self._parent(start), order[start:])
        mine, there = self._patches[at].name, self._patches[other].name
        if self._checkout.tree_of(tip) != self._checkout.tree_of(self._tip):
            raise errors.K2mpsError(
                f"to move {mine} there would change the files that the series makes",
                why=f"patches between the two places change lines next to lines of {mine}",
                next_command="choose another place",
            )
        return self._finish(f"move {mine} {'--after' if after else '--before'} {there}", tip)

    def drop(self, name: str) -> extraction.Plan:
        """Takes a patch out of the series and its changes out of the checkout."""
        at = self._find(name)
        self._checkout.check_at_rest()
        tip = self._replay(self._parent(at), self._after(at))
        return self._finish(f"drop {self._patches[at].name}", tip, move=True)

    def _find(self, name: str) -> int:
        """The index of a patch in the series."""
        return self._patches.index(self._series.named(name))

    def _parent(self, at: int) -> str:
        return self._commits[at].parents[0]

    def _after(self, at: int) -> range:
        return range(at + 1, len(self._patches))

    def _remade(self, at: int, patch: Patch, tree: str = "") -> str:
        """The series with another header, and another tree if given, of one patch."""
        tree = tree or self._checkout.tree_of(self._commits[at].id)
        return self._replay(self._commit(tree, self._parent(at), patch), self._after(at))

    def _edited_tree(self, paths: Sequence[str]) -> str:
        """The tree of the files that git tracks and of those that are named."""
        checkout = self._checkout
        with checkout.scratch_index() as index:
            # With the times in the index, git reads edited files only.
            shutil.copy2(checkout.git_dir / "index", index.index)
            self._stage(index, paths)
            tree = index.text("write-tree")
        if tree == checkout.tree_of(self._tip):
            untracked = checkout.untracked_files()
            raise errors.K2mpsError(
                f"nothing was edited in {checkout.directory}",
                why=f"git does not track {', '.join(untracked[:5])}" if untracked else "",
                next_command="edit files there, or name the new ones, in the same command",
            )
        return tree

    def _stage(self, index: git.Git, paths: Sequence[str]) -> None:
        """Adds the edits, and files that are named, to an index."""
        index.bytes("add", "--update", work_tree=True)
        if not paths:
            return
        result = index.run("add", "--", *map(self._inside, paths), work_tree=True)
        if result.status != 0:
            raise errors.K2mpsError(
                f"git cannot add {', '.join(paths)}",
                why=result.stderr,
                next_command="name files of the checkout; git add --force takes a"
                " file that git ignores",
            )

    def _inside(self, path: str) -> str:
        """A path that the user gave, relative to the top of the checkout."""
        top = self._checkout.directory
        full = Path(os.path.abspath(path))
        if os.path.lexists(full) and top in full.parents:
            return str(full.relative_to(top))
        return path

    def _commit(self, tree: str, parent: str, patch: Patch) -> str:
        who = Author(patch.author, patch.date or self._date).variables()
        who["GIT_COMMITTER_DATE"] = self._date
        return self._checkout.commit_tree(tree, parent, patch.commit_message(), who)

    def _replay(self, tip: str, order: Iterable[int]) -> str:
        """Puts patches onto a commit, in this order."""
        for at in order:
            patch = self._patches[at]
            tree = moved(self._checkout, self._commits[at], tip)
            if tree is None or tree == self._checkout.tree_of(tip):
                raise errors.K2mpsError(
                    f"patches/{patch.name} needs patches that would come after it",
                    why="it changes the same lines, or lines next to them",
                    next_command=f"change or drop {patch.name} first",
                )
            tip = self._commit(tree, tip, patch)
        return tip

    def _finish(
        self, command: str, tip: str, stage: Sequence[str] | None = None, move: bool = False
    ) -> extraction.Plan:
        """Writes patches/ and moves the branch.

        Args:
          command: for the log.
          stage: the untracked files that `tip` has beside the checkout's edits,
            which the index gets; None where `tip` has no edits.
          move: whether the checkout's files become those of `tip`.
        """
        checkout = self._checkout
        commits = checkout.commits(f"{self._pin.commit}..{tip}")
        plan = extraction.plan(self._project, checkout, commits)
        if not plan.changed and not plan.removed:
            return plan
        refs = {BRANCH_REF: tip, BASE_REF: tip}
        operations.carry_out(
            self._project,
            checkout,
            command,
            changed=plan.changed,
            removed=plan.removed,
            move=Move(refs, tip, BRANCH_REF) if move else Move(refs),
            stage=None if stage is None else functools.partial(self._stage, checkout.git, stage),
        )
        return plan


def parse_words(text: str) -> Words:
    """Reads the text of an editor: the subject, the status, the body."""
    parts = [part.strip("\n") for part in text.strip("\n").split("\n\n", 2)]
    if len(parts) < 2 or not parts[1].startswith("Upstream-Status: "):
        raise errors.K2mpsError(
            "the text must be a subject, an empty line, Upstream-Status: and"
            " its value, an empty line, and the body",
            next_command="run the same command again",
        )
    status = parts[1].partition(": ")[2]
    return {"subject": parts[0], "status": status, "body": "".join(parts[2:])}


def _worded(patch: Patch, words: Words) -> Patch:
    """A patch with another header."""
    said = {
        # The first line of a body may be indented.
        key: value.strip("\n" if key == "body" else None)
        for key, value in words.items()
        if value is not None
    }
    made = dataclasses.replace(patch, **said)
    date = made.date
    if "date" in said:
        date = patch_text.mail_date(date) or date
    elif made.author == patch_text.FROM:
        date = ""
    elif not date:
        date = patch_text.mail_date(email.utils.formatdate(localtime=True))
    made = dataclasses.replace(made, subject=" ".join(made.subject.split()), date=date)
    refused = patch_text.flaw(made)
    if refused:
        raise errors.K2mpsError(
            refused[1], next_command="run the same command again with other words"
        )
    return made
