"""The commands that change one patch: new, fold, edit, rename, move, drop.

Each command makes the commit of the patch and those after it anew, the later
ones by a 3-way merge, and does not touch the checkout meanwhile.  Then branch,
patches/ and lock change together, or not at all.
"""

import contextlib
import dataclasses
import functools
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from k2mps.core import errors, git
from k2mps.core.pins import Upstream
from k2mps.core.project import Project
from k2mps.series import patch_text, series_file
from k2mps.series.patch_text import Patch
from k2mps.stack import extraction, operations
from k2mps.stack.apply import locked
from k2mps.stack.checkout import BASE_REF, BRANCH, BRANCH_REF, Author, Checkout, Move
from k2mps.stack.commits import changed, commit_date, commit_series, moved


@dataclasses.dataclass(frozen=True)
class Words:
    """The header of a patch; None keeps what the patch has."""

    subject: str | None = None
    body: str | None = None
    status: str | None = None
    author: str | None = None  # "NAME <EMAIL>"
    date: str | None = None  # the author's date, as in mail

    def of(self, patch: Patch) -> Patch:
        """The patch with this header."""
        author, date = self._written(patch)
        subject, status, body = (
            getattr(patch if getattr(self, name) is None else self, name)
            for name in ("subject", "status", "body")
        )
        subject, status = " ".join(subject.split()), status.strip()
        if not subject:
            raise _unsayable("a patch needs a subject")
        if status.split(" ")[0] not in patch_text.STATUSES:
            raise _unsayable(
                f"Upstream-Status is one of {', '.join(patch_text.STATUSES)}, not {status!r}"
            )
        return dataclasses.replace(
            patch, subject=subject, status=status, body=body.strip("\n"), author=author, date=date
        )

    def _written(self, patch: Patch) -> tuple[str, str]:
        author = patch.author if self.author is None else self.author.strip()
        if not patch_text.AUTHOR.fullmatch(author):
            raise _unsayable(f"{author!r} is not 'NAME <EMAIL>'")
        if author == patch_text.FROM and self.date is not None:
            raise _unsayable("a date needs an author")
        if author == patch_text.FROM:
            return author, ""
        if self.date is None:
            return author, patch.date or _now()
        date = patch_text.mail_date(self.date)
        if not date:
            raise _unsayable(
                f"{self.date!r} is not a date as in mail, 'Tue, 14 Nov 2023 23:13:20 +0100'"
            )
        return author, date


def new(
    project: Project, checkout: Checkout, words: Words, paths: Sequence[str] = ()
) -> extraction.Plan:
    """Makes a patch of the checkout's edits, at the end of the series.

    The default author is the user, as git knows them.

    Args:
      paths: untracked files and directories that become part of the patch.
    """
    user = "{} <{}>".format(*checkout.user())
    who = words.author or (user if patch_text.AUTHOR.fullmatch(user) else patch_text.FROM)
    empty = Patch("", "", patch_text.DEFAULT_STATUS, "", (), b"", ())
    patch = dataclasses.replace(words, author=who).of(empty)
    with _Author.at_work(project, checkout) as author:
        tree = author.edited_tree(paths)
        name = extraction.name_for(patch.subject, {patch.name for patch in author.patches})
        patch = dataclasses.replace(patch, name=name)
        tip = author.commit(tree, author.tip, patch)
        return author.finish(f"new {name}", tip, stage=paths)


def fold(
    project: Project, checkout: Checkout, name: str, paths: Sequence[str] = ()
) -> extraction.Plan:
    """Adds the checkout's edits to a patch."""
    with _Author.at_work(project, checkout) as author:
        at = author.find(name)
        tree = author.edited_tree(paths)
        parent = author.parent(at)
        folded = changed(checkout, author.commits[at].id, author.tip, tree)
        if folded is None:
            raise errors.K2mpsError(
                f"the edits cannot become part of {author.patches[at].name}",
                why="they are in lines or files that a later patch changes or adds",
                next_command="k2mps fold into that patch, or k2mps new",
            )
        tip = author.commit(folded, parent, author.patches[at])
        tip = author.replay(tip, author.after(at))
        if checkout.tree_of(tip) != tree:
            raise errors.K2mpsError(
                f"with the edits in {author.patches[at].name} the series"
                " gives other files than those of the checkout",
                why="a later patch changes lines next to them",
                next_command="k2mps fold into that patch, or k2mps new",
            )
        return author.finish(f"fold {author.patches[at].name}", tip, stage=paths)


def edit(project: Project, checkout: Checkout, name: str, words: Words) -> extraction.Plan:
    with _Author.at_work(project, checkout) as author:
        at = author.find(name)
        old = author.patches[at]
        tip = author.reworded(at, words.of(old))
        return author.finish(f"edit {old.name}", tip)


def rename(project: Project, checkout: Checkout, name: str, to: str) -> extraction.Plan:
    """Gives a patch another file name.

    Raises:
      SeriesError: the name is not valid.
    """
    to = f"{to.removesuffix('.patch')}.patch"
    series_file.check_name(to, "rename")
    with _Author.at_work(project, checkout) as author:
        at = author.find(name)
        old = author.patches[at]
        if to in {patch.name for patch in author.patches}:
            raise errors.K2mpsError(
                f"there is a patch {to} already", next_command="choose another name"
            )
        tip = author.reworded(at, dataclasses.replace(old, name=to))
        return author.finish(f"rename {old.name} {to}", tip)


def move(
    project: Project, checkout: Checkout, name: str, anchor: str, after: bool = False
) -> extraction.Plan:
    """Gives a patch another place in the series, next to another patch.

    Args:
      anchor: the patch before which, or with `after` behind which, it goes.
    """
    with _Author.at_work(project, checkout) as author:
        at, other = author.find(name), author.find(anchor)
        if at == other:
            raise errors.K2mpsError(
                f"{anchor} is the patch itself", next_command="name another patch"
            )
        order = [*range(len(author.patches))]
        order.remove(at)
        order.insert(order.index(other) + after, at)
        start = min(at, order.index(at))
        tip = author.replay(author.parent(start), order[start:])
        moved = author.patches[at].name
        if checkout.tree_of(tip) != checkout.tree_of(author.tip):
            raise errors.K2mpsError(
                f"with {moved} there the series gives other files",
                why="patches on the way change lines next to its own",
                next_command="choose another place",
            )
        return author.finish(
            f"move {moved} {'--after' if after else '--before'} {author.patches[other].name}", tip
        )


def drop(project: Project, checkout: Checkout, name: str) -> extraction.Plan:
    """Takes a patch out of the series and its changes out of the checkout."""
    with _Author.at_work(project, checkout) as author:
        at = author.find(name)
        checkout.check_at_rest()
        tip = author.replay(author.parent(at), author.after(at))
        return author.finish(f"drop {author.patches[at].name}", tip, move=True)


def parse_words(text: str) -> Words:
    """Reads the text of an editor: the subject, the status, the body."""
    parts = [part.strip("\n") for part in text.strip("\n").split("\n\n", 2)]
    if len(parts) < 2 or not parts[1].startswith("Upstream-Status: "):
        raise errors.K2mpsError(
            "the text must be a subject, an empty line, Upstream-Status: and"
            " its value, an empty line, and the body",
            next_command="run the same command again",
        )
    subject = parts[0]
    status = parts[1].partition(": ")[2].strip()
    return Words(subject, parts[2] if len(parts) > 2 else "", status)


class _Author:
    """The series as commits, some of which a command makes anew.

    The commits come from patches/, which decides on names and order, not from the branch.

    Attributes:
      patches, commits: the series, in order.
      tip: its last commit, or the pin.
    """

    def __init__(self, project: Project, checkout: Checkout, pinned: Upstream):
        self._project = project
        self._checkout = checkout
        self._pin = pinned.pin
        self._series = found = locked(project, pinned)
        self.patches = found.patches
        self._check_branch()
        self.tip = commit_series(checkout, pinned.pin, found).tip
        if self._head.tree != checkout.tree_of(self.tip):
            raise self._not_at_series()
        self.commits = checkout.commits(f"{self._pin.commit}..{self.tip}")
        self._date = commit_date(checkout, self._pin.commit)

    @staticmethod
    @contextlib.contextmanager
    def at_work(project: Project, checkout: Checkout) -> Iterator["_Author"]:
        """Locks the project and the checkout for the context."""
        with operations.at_work(project, checkout):
            yield _Author(project, checkout, project.upstream())

    def _check_branch(self) -> None:
        """Refuses a checkout that is on another branch or has further commits."""
        checkout = self._checkout
        checkout.check_at_rest(edits_too=False)
        self._head = checkout.head()
        if self._head.branch != BRANCH_REF:
            raise self._not_at_series()
        if checkout.unexported(self._pin.commit, self._head.commit):
            raise errors.K2mpsError(
                f"{checkout.directory} does not have the series applied",
                why=f"branch {BRANCH} has commits that are not in patches/",
                next_command="k2mps export",
            )

    def _not_at_series(self) -> errors.K2mpsError:
        return errors.K2mpsError(
            f"{self._checkout.directory} does not have the series applied",
            why=f"it is not on branch {BRANCH} with patches/ as locked",
            next_command="k2mps apply",
        )

    def find(self, name: str) -> int:
        """The index of a patch in the series."""
        return self.patches.index(self._series.named(name))

    def parent(self, at: int) -> str:
        return self.commits[at].parents[0]

    def after(self, at: int) -> range:
        return range(at + 1, len(self.patches))

    def reworded(self, at: int, patch: Patch) -> str:
        """The series with another text or name of one patch."""
        tree = self._checkout.tree_of(self.commits[at].id)
        tip = self.commit(tree, self.parent(at), patch)
        return self.replay(tip, self.after(at))

    def edited_tree(self, paths: Sequence[str]) -> str:
        """The tree of the files that git tracks and of those that are named."""
        checkout = self._checkout
        with checkout.scratch_index() as index:
            # With the times in the index, git reads edited files only.
            shutil.copy2(checkout.git_dir / "index", index.index)
            self._stage(index, paths)
            tree = index.text("write-tree")
        if tree == checkout.tree_of(self.tip):
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
                next_command="name files of the checkout; git add --force one"
                " that git is told to ignore",
            )

    def _inside(self, path: str) -> str:
        """A path that the user gave, relative to the top of the checkout."""
        top = self._checkout.directory
        full = Path(os.path.abspath(path))
        if os.path.lexists(full) and top in full.parents:
            return str(full.relative_to(top))
        return path

    def commit(self, tree: str, parent: str, patch: Patch) -> str:
        who = Author(patch.author, patch.date or self._date).variables()
        who["GIT_COMMITTER_DATE"] = self._date
        return self._checkout.commit_tree(tree, parent, patch.commit_message(), who)

    def replay(self, tip: str, order: Iterable[int]) -> str:
        """Puts patches onto a commit, in this order."""
        for at in order:
            patch = self.patches[at]
            tree = moved(self._checkout, self.commits[at], tip)
            if tree is None or tree == self._checkout.tree_of(tip):
                raise errors.K2mpsError(
                    f"patches/{patch.name} needs patches that would come after it",
                    why="it changes the same lines, or lines next to them",
                    next_command=f"change or drop {patch.name} first",
                )
            tip = self.commit(tree, tip, patch)
        return tip

    def finish(
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


def _now() -> str:
    import datetime
    import email.utils

    now = datetime.datetime.now().astimezone()
    return patch_text.mail_date(email.utils.format_datetime(now))


def _unsayable(what: str) -> errors.K2mpsError:
    return errors.K2mpsError(what, next_command="run the same command again with other words")
