"""The state and the locks that a command needs to change the project or its checkout.

A command reads the state, `Work`, when it begins.  `at_work` locks the project and the checkout, so
that no other run of the tool changes them meanwhile.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping

from k2mps.core import errors
from k2mps.core.git import quoted
from k2mps.core.objects import File
from k2mps.core.project import Project, exclusive
from k2mps.series import patch_folder
from k2mps.stack import applied, commits, upstream
from k2mps.stack.checkout import BRANCH_REF, Checkout, Commit


class Work:
    """The state of the project and its checkout when a command begins.

    Attributes:
      pin: the pin; its `commit` is the id of a commit, even if upstream.toml names a tag.
      head: the commit and branch of the checkout.
      files: patches/ and upstream.toml, by path in the project.
      applied: the contents of the tool's ref, see applied.py; None if the series was never applied.
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
        """The tree entries (mode and blob id) for `files`."""
        return applied.entries(self.files)

    @property
    def changed(self) -> list[str]:
        """The files of patches/ (or upstream.toml) that changed since patches/ was applied."""
        return applied.differing(self.applied.files, self.entries) if self.applied else []

    @functools.cached_property
    def base(self) -> str:
        """The upstream commit on which branch k2-mps stands; empty if it is unknown.

        After a `git rebase`, this is another commit than the pin, until `k2mps export --onto`
        writes the pin.
        """
        tip, pin, is_ancestor = self.head.tip, self.pin.commit, self.checkout.is_ancestor
        if not tip:
            return ""
        on_pin = is_ancestor(pin, tip)
        if not (self.applied and is_ancestor(self.applied.tip, tip)):
            for commit in upstream.rebase_bases(self.checkout):
                if is_ancestor(commit, tip) and (not on_pin or is_ancestor(pin, commit)):
                    return commit
        return pin if on_pin else ""

    @property
    def tip_is_known(self) -> bool:
        """Whether patches/ is unchanged since it was applied; if so, the last commit exists."""
        return bool(self.applied) and not self.changed

    def tip(self) -> str:
        """Returns the series' last commit; makes the commits if need be."""
        if self.tip_is_known:
            return self.applied.tip
        return commits.series_tip(self.project, self.checkout, self.pin)

    def users(self, tip: str = "", of: str = "") -> list[Commit]:
        """Returns the user's commits, which patches/ lacks.

        Args:
          tip: the last commit of the series; empty if the caller has not made it.
          of: the commit whose ancestors are searched; empty for the last commit of branch k2-mps.
        """
        last = of or self.head.tip
        known = [one for one in (self.pin.commit, tip, self.applied and self.applied.tip) if one]
        if not last or last in known:
            return []
        others = self.checkout.commits(last, "--not", *known)
        # If the tool's ref is missing, the tool's commits do not count, because they may be another
        # version of the series.
        return [one for one in others if self.applied or not one.ours]

    def record(
        self, tip: str, contents: Mapping[str, File] | None = None, branch: str = ""
    ) -> None:
        """Records in the tool's ref that `tip` is the last commit of the series in `contents`.

        Args:
          contents: patches/ and upstream.toml; None for `files`.
          branch: the commit to which branch k2-mps moves; empty if the branch stays.
        """
        contents = self.files if contents is None else contents
        known = self.applied
        if known and known.tip == tip and known.files == applied.entries(contents):
            commit = known.id
        else:
            commit = applied.commit(self.checkout, contents, tip)
        # Another program may have written the ref, so it may exist even if `applied` is None.  git
        # overwrites the ref only if the update names the ref's old id.
        name = ("for-each-ref", "--format=%(objectname)", applied.REF)
        updates = [(applied.REF, commit, known.id if known else self.checkout.git.text(*name))]
        if branch:
            updates.append((BRANCH_REF, branch, self.head.tip))
        applied.move(self.checkout, updates)


@contextlib.contextmanager
def at_work(project: Project, checkout: Checkout) -> Iterator[Work]:
    """Locks the project and the checkout for the context."""
    with exclusive(project.root, str(project.root)), checkout.exclusive():
        yield Work(project, checkout)


def refused(project: Project, paths: list[str], doing: str) -> errors.K2mpsError:
    """Returns the error for files of patches/ that someone changed after patches/ was applied.

    Args:
      paths: the paths of the files.
      doing: the command that would overwrite them.
    """
    why = f"git or an editor changed {errors.some(paths)}; {doing} would overwrite the change"
    advice = "k2mps apply, which says how to put your commits on top"
    for _, error in patch_folder.examine(project.patches)[1]:
        if isinstance(error, errors.K2mpsError):
            why, advice = f"{why}; {error.what}", error.next_command
            break
    return errors.K2mpsError(
        "patches/ has changed since it was applied here",
        why=why,
        next_command=f"{advice}; or git stash -u -- patches upstream.toml, to put the change aside",
    )


def where(checkout: Checkout) -> str:
    """Returns `git -C DIRECTORY`, with which a git command for the checkout begins."""
    return f"git -C {quoted(checkout.directory)}"
