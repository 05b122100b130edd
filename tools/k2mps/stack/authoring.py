"""The commands that change one patch: new, fold, edit, rename, move, drop.

Each command makes a new commit of the patch, and puts the later commits onto it by 3-way merges of
git's, which touch no file.  Then branch and patches/ change together, or not at all.
"""

import contextlib
import dataclasses
import email.utils
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence

from k2mps.core import errors, git
from k2mps.core.project import Project
from k2mps.series import patch_text, series_file
from k2mps.series.patch_folder import load
from k2mps.series.patch_text import Patch
from k2mps.stack import export, extraction, states
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout
from k2mps.stack.commits import Item, commit_date, mail_date, merged, replay, series_tip, unexported
from k2mps.stack.states import States

# The header of a patch, by the names of the fields of `Patch`; None keeps what the patch has.
Words = Mapping[str, str | None]


@contextlib.contextmanager
def at_work(project: Project, checkout: Checkout) -> Iterator["CommittedSeries"]:
    """The series, which no other run changes during the context."""
    with states.at_work(project, checkout) as known:
        yield CommittedSeries(known)


class CommittedSeries:
    """The series as commits, some of which a command makes anew.

    The commits come from patches/, which decides on names and order, not from the branch.
    """

    def __init__(self, known: States):
        self._known = known
        self._project, self._checkout = known.project, known.checkout
        self._series = load(self._project.patches)
        self._patches = self._series.patches
        pin, head, checkout = self._project.upstream().pin, known.head, self._checkout
        self._pin = pin.commit
        checkout.check_at_rest(edits_too=False)
        on_branch = head.branch == BRANCH_REF
        mine = on_branch and unexported(self._project, checkout, pin.commit, head.commit, known)
        self._tip = series_tip(self._project, checkout, pin, self._series, known)
        if mine or not on_branch or head.commit != self._tip:
            raise errors.K2mpsError(
                f"{checkout.directory} does not have the series applied",
                why=f"branch {BRANCH} has commits that are not in patches/"
                if mine
                else f"it is not on branch {BRANCH} with patches/ as it is",
                next_command="k2mps export" if mine else "k2mps apply",
            )
        self._commits = checkout.commits(f"{self._pin}..{self._tip}")
        self._date = commit_date(checkout, self._pin)
        self._before = [
            self._item(patch, one.parents[0], one.id)
            for patch, one in zip(self._patches, self._commits)
        ]
        self._items = [*self._before]

    def new(self, words: Words, paths: Sequence[str] = ()) -> extraction.Plan:
        """Makes a patch of the checkout's edits, at the end of the series.

        The default author is the user, as git knows them.

        Args:
          paths: untracked files and directories that become part of the patch.
        """
        user = "{} <{}>".format(*self._checkout.user())
        who = user if patch_text.AUTHOR.fullmatch(user) else patch_text.FROM
        empty = Patch("", "", patch_text.DEFAULT_STATUS, "", (), b"")
        patch = _worded(empty, {**words, "author": words["author"] or who})
        tree = self._edited_tree(paths)
        name = extraction.name_for(patch.subject, {patch.name for patch in self._patches})
        made = self._item(dataclasses.replace(patch, name=name), self._tip, tree)
        return self._finish(f"new {name}", [*self._items, made], "edits")

    def fold(self, name: str, paths: Sequence[str] = ()) -> extraction.Plan:
        """Adds the checkout's edits to a patch."""
        at = self._find(name)
        patch = self._patches[at]
        tree = self._edited_tree(paths)
        folded, conflicts = merged(self._checkout, self._tip, self._commits[at].id, tree)
        self._items[at] = self._items[at]._replace(theirs=folded)
        refused = errors.K2mpsError(
            f"the edits cannot become part of {patch.name}",
            why="a later patch changes or adds these lines or files, or lines next to them",
            next_command="k2mps fold into that patch, or k2mps new",
        )
        if conflicts:
            raise refused
        return self._finish(f"fold {patch.name}", self._items, "edits", tree, refused)

    def edit(self, name: str, words: Words) -> extraction.Plan:
        """Changes the header of a patch."""
        at = self._find(name)
        return self._remade(f"edit {self._patches[at].name}", at, _worded(self._patches[at], words))

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
        return self._remade(f"rename {old.name} {to}", at, dataclasses.replace(old, name=to))

    def move(self, name: str, anchor: str, after: bool = False) -> extraction.Plan:
        """Gives a patch the place before another one or, with `after`, behind it."""
        at, other = self._find(name), self._find(anchor)
        if at == other:
            raise errors.K2mpsError(
                f"{anchor} is the patch itself", next_command="name another patch"
            )
        mine, there = self._patches[at].name, self._patches[other].name
        items = [one for one in self._items if one is not self._items[at]]
        items.insert(items.index(self._items[other]) + after, self._items[at])
        refused = errors.K2mpsError(
            f"to move {mine} there would change the files that the series makes",
            why=f"patches between the two places change lines next to lines of {mine}",
            next_command="choose another place",
        )
        command = f"move {mine} {'--after' if after else '--before'} {there}"
        return self._finish(command, items, "index", self._tip, refused)

    def drop(self, name: str) -> extraction.Plan:
        """Takes a patch out of the series and its changes out of the checkout."""
        at = self._find(name)
        self._checkout.check_at_rest()
        items = [*self._items[:at], *self._items[at + 1 :]]
        return self._finish(f"drop {self._patches[at].name}", items, "files")

    def _find(self, name: str) -> int:
        """The index of a patch in the series."""
        return self._patches.index(self._series.named(name))

    def _remade(self, command: str, at: int, patch: Patch) -> extraction.Plan:
        """Gives a patch another header."""
        old = self._items[at]
        self._items[at] = self._item(patch, old.base, old.theirs)
        return self._finish(command, self._items, "index")

    def _edited_tree(self, paths: Sequence[str]) -> str:
        """The tree of the files that git tracks and of those that are named."""
        checkout = self._checkout
        with git.own_index() as environment:
            # With the times in the index, git reads edited files only.
            shutil.copy2(checkout.git_dir / "index", environment["GIT_INDEX_FILE"])
            checkout.git.bytes("add", "--update", work_tree=True, environment=environment)
            if paths:
                # A path is of this folder, if there is such a file, or else of the checkout.
                named = (os.path.abspath(one) if os.path.lexists(one) else one for one in paths)
                add = ("add", "--", *named)
                result = checkout.git.run(*add, work_tree=True, environment=environment)
                if result.status != 0:
                    raise errors.K2mpsError(
                        f"git cannot add {', '.join(paths)}",
                        why=result.stderr,
                        next_command="name files of the checkout; git add --force takes a"
                        " file that git ignores",
                    )
            tree = checkout.git.text("write-tree", environment=environment)
        if tree == checkout.tree_of(self._tip):
            untracked = checkout.untracked_files()
            raise errors.K2mpsError(
                f"nothing was edited in {checkout.directory}",
                why=f"git does not track {', '.join(untracked[:5])}" if untracked else "",
                next_command="edit files there, or name the new ones, in the same command",
            )
        return tree

    def _item(self, patch: Patch, base: str, theirs: str) -> Item:
        moment = email.utils.parsedate_to_datetime(patch.date or mail_date(self._date))
        when = f"{int(moment.timestamp())} {patch.date[-5:] or '+0000'}"
        author, name = f"{patch.author} {when}", f"patches/{patch.name}"
        return Item(base, theirs, patch.commit_message(), author, name)

    def _finish(
        self,
        command: str,
        items: Sequence[Item],
        how: str,
        wanted: str = "",
        refused: errors.K2mpsError | None = None,
    ) -> extraction.Plan:
        """Makes the commits, writes patches/ and moves the branch.

        Args:
          command: for the list of states.
          how: as in `Move`.
          wanted: a tree or commit whose files the series must have; else `refused` is raised.
        """
        checkout = self._checkout
        pairs = itertools.takewhile(lambda pair: pair[0] is pair[1], zip(items, self._before))
        same = len(list(pairs))  # the first commits, which stay
        start = self._commits[same - 1].id if same else self._pin
        try:
            tip = replay(checkout, self._date, start, items[same:])
        except errors.K2mpsError as error:
            raise (refused if command.startswith("fold") else error) from None
        if wanted and checkout.tree_of(tip) != checkout.tree_of(wanted):
            raise refused
        commits = checkout.commits(f"{self._pin}..{tip}")
        plan = extraction.plan(self._project, checkout, commits)
        if plan.changed or plan.removed:
            export.finish(self._known, command, plan, commits, how)
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
    said = {key: value for key, value in words.items() if value is not None}
    # The first line of a body may be indented.
    said = {key: value if key == "body" else value.strip() for key, value in said.items()}
    made = dataclasses.replace(patch, **said)
    date = made.date or email.utils.formatdate(localtime=True)
    if made.author == patch_text.FROM and "date" not in said:
        date = ""
    date = patch_text.mail_date(date) or date
    subject, body = " ".join(made.subject.split()), patch_text.plain(made.body)
    made = dataclasses.replace(made, subject=subject, body=body, date=date)
    refused = patch_text.flaw(made)
    if refused:
        raise errors.K2mpsError(
            refused[1], next_command="run the same command again with other words"
        )
    return made
