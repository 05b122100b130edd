"""The commands that change the series in the checkout: new, fold, drop.

Each command makes a new commit of the patch, and puts the later commits onto it by 3-way merges of
git's, which touch no file.  Then branch and patches/ change together, or not at all.
"""

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterator, Sequence

from k2mps.core import errors, git
from k2mps.core.project import Project
from k2mps.series import patch_text
from k2mps.series.patch_folder import load
from k2mps.series.patch_text import FROM, Patch
from k2mps.stack import export, extraction, states
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Commit
from k2mps.stack.commits import commit_date, merged, replay, series_tip
from k2mps.stack.states import States


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
        mine = on_branch and known.unexported(pin.commit, head.commit)
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

    def new(self, subject: str, body: str, paths: Sequence[str] = ()) -> extraction.Plan:
        """Makes a patch of the checkout's edits, at the end of the series.

        The author is the user, as git knows them.

        Args:
          paths: untracked files and directories that become part of the patch.
        """
        subject = " ".join(subject.split())
        name = extraction.name_for(subject, {patch.name for patch in self._patches})
        body = patch_text.plain(body)
        patch = Patch(name, subject, patch_text.DEFAULT_STATUS, body, (), b"")
        refused = patch_text.flaw(patch)
        if refused:
            raise errors.K2mpsError(
                refused[1], next_command="run the same command again with other words"
            )
        who, when = FROM, self._date
        user = "{} <{}>".format(*self._checkout.user())
        if patch_text.AUTHOR.fullmatch(user):
            who, when = user, f"{int(time.time())} {time.strftime('%z')}"
        tree, message = self._edited_tree(paths), patch.commit_message()
        made = Commit(tree, (self._tip,), FROM, who, "", when, message)
        return self._finish(f"new {name}", [*self._commits, made], "edits")

    def fold(self, name: str, paths: Sequence[str] = ()) -> extraction.Plan:
        """Adds the checkout's edits to a patch."""
        at = self._find(name)
        tree = self._edited_tree(paths)
        # Where the edits conflict with later patches, these do not apply to the result.
        old, tip = map(self._checkout.tree_of, (self._commits[at].id, self._tip))
        folded, _ = merged(self._checkout, tip, old, tree)
        commits = [*self._commits]
        commits[at] = commits[at]._replace(id=folded)
        return self._finish(f"fold {self._patches[at].name}", commits, "edits", tree)

    def drop(self, name: str) -> extraction.Plan:
        """Takes a patch out of the series and its changes out of the checkout."""
        at = self._find(name)
        self._checkout.check_at_rest()
        commits = [*self._commits[:at], *self._commits[at + 1 :]]
        return self._finish(f"drop {self._patches[at].name}", commits, "files")

    def _find(self, name: str) -> int:
        """The index of a patch in the series."""
        return self._patches.index(self._series.named(name))

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

    def _finish(
        self, command: str, commits: Sequence[Commit], how: str, wanted: str = ""
    ) -> extraction.Plan:
        """Makes the commits, writes patches/ and moves the branch.

        Args:
          command: for the list of states.
          how: as in `Move`.
          wanted: a tree that the series must give.
        """
        checkout = self._checkout
        pairs = itertools.takewhile(lambda pair: pair[0] is pair[1], zip(commits, self._commits))
        same = len(list(pairs))  # the first commits, which stay
        start = commits[same - 1].id if same else self._pin
        tip = replay(checkout, self._date, start, commits[same:])
        if wanted and checkout.tree_of(tip) != wanted:
            raise errors.K2mpsError(
                f"k2mps {command} would change the files of the checkout",
                why="a later patch changes the same lines, or lines next to them",
                next_command="k2mps fold into that patch, or k2mps new",
            )
        made = checkout.commits(f"{self._pin}..{tip}")
        plan = extraction.plan(self._project, checkout, made)
        export.finish(self._known, command, plan, made, how)
        return plan
