"""A command's view of the project and its checkout, which no other run changes meanwhile."""

import contextlib
import functools
from collections.abc import Iterator, Mapping

from k2mps.core import errors
from k2mps.core.git import quoted
from k2mps.core.objects import File
from k2mps.core.project import Project, exclusive
from k2mps.series import patch_folder
from k2mps.stack import applied, commits
from k2mps.stack.checkout import BRANCH_REF, Checkout, Commit

END_OF_REBASE = "k2mps rebase --continue, or --abort"


class Work:
    """What a command finds.

    Attributes:
      pin: the pin, by the id of its commit.
      head: where the checkout stands.
      files: patches/ and upstream.toml as they are.
      applied: what the tool's ref says; None where there is none.
    """

    def __init__(self, project: Project, checkout: Checkout):
        self.project = project
        self.checkout = checkout
        checkout.check_index()
        self.pin = checkout.pinned(project.upstream().pin)
        self.head = checkout.head()
        self.applied = applied.read(checkout)
        self.files = applied.files(project)

    @functools.cached_property
    def entries(self):
        """`files` as a tree has them."""
        return applied.entries(self.files)

    @property
    def changed(self) -> list[str]:
        """The files that changed since patches/ was applied."""
        return applied.differing(self.applied.files, self.entries) if self.applied else []

    @property
    def tip_is_known(self) -> bool:
        """Whether the series' last commit need not be made."""
        return bool(self.applied) and not self.changed

    def tip(self) -> str:
        """The series' last commit."""
        if self.tip_is_known:
            return self.applied.tip
        return commits.series_tip(self.project, self.checkout, self.pin)

    def users(self, tip: str = "", of: str = "") -> list[Commit]:
        """The user's commits, which patches/ lacks: those of branch k2-mps, or those up to `of`.

        Args:
          tip: the last commit of the series; empty if the caller has not made it.
        """
        last = of or self.head.tip
        known = [one for one in (self.pin.commit, tip, self.applied and self.applied.tip) if one]
        if not last or last in known:
            return []
        found = self.checkout.commits(last, "--not", *known)
        # Without a ref, another version of the tool may have made the commits.
        return [one for one in found if self.applied or not one.ours]

    def record(self, tip: str, found: Mapping[str, File] | None = None, branch: str = "") -> None:
        """Records in the ref that these files give the commit `tip`.

        Args:
          branch: the commit to which the branch moves; empty if the branch stays.
        """
        found = self.files if found is None else found
        known = self.applied
        if known and known.tip == tip and known.files == applied.entries(found):
            made = known.id
        else:
            made = applied.commit(self.checkout, found, tip)
        # A ref that the tool cannot read is overwritten.
        name = ("for-each-ref", "--format=%(objectname)", applied.REF)
        updates = [(applied.REF, made, known.id if known else self.checkout.git.text(*name))]
        if branch:
            updates.append((BRANCH_REF, branch, self.head.tip))
        applied.move(self.checkout, updates)


@contextlib.contextmanager
def at_work(project: Project, checkout: Checkout, rebasing: bool = False) -> Iterator[Work]:
    """Locks the project and the checkout.

    Args:
      rebasing: whether the caller is the rebase that may be in progress; any other command is
        refused beside a rebase.
    """
    with exclusive(project.root, str(project.root)), checkout.exclusive():
        if not rebasing:
            check_no_rebase(project)
        yield Work(project, checkout)


def check_no_rebase(project: Project) -> None:
    """Refuses to change patches/ during a rebase, whose end would overwrite the change."""
    stopped = rebase_under_way(project)
    if stopped:
        raise errors.ConflictError(
            stopped, why="a rebase writes patches/ when it ends", next_command=END_OF_REBASE
        )


def rebase_file(project: Project):
    """The file in which a rebase keeps how far it is."""
    return project.rebase / ".git/k2mps-rebase.json"


def rebase_under_way(project: Project) -> str:
    """A sentence about the rebase that waits for the user; empty if none does."""
    there = rebase_file(project).exists()
    return f"a rebase is in progress in {project.rebase}" if there else ""


def refused(project: Project, paths: list[str], doing: str) -> errors.K2mpsError:
    """The error about files of patches/ that are neither as applied nor as they are to become."""
    why = f"by git or by hand, and {doing} would overwrite that: {errors.some(paths)}"
    advice = "k2mps apply, which says how to put your commits on top"
    for _, error in patch_folder.examine(project.patches)[1]:
        if isinstance(error, errors.K2mpsError):
            why, advice = f"{why}; {error.what}", error.next_command
            break
    return errors.K2mpsError(
        "patches/ has changed since it was applied here",
        why=why,
        next_command=f"{advice}; or k2mps export --overwrite, to give the change up",
    )


def where(checkout: Checkout) -> str:
    """The beginning of a command of git's in the checkout."""
    return f"git -C {quoted(checkout.directory)}"
