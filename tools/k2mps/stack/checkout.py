"""A k2 checkout: a working tree and its repository.

The methods of `Checkout` read facts, such as HEAD, edits and commits.  The attribute `git` of a
`Checkout` runs git on the files; the attribute `objects` runs git on commits and trees.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors, git
from k2mps.core.git import quoted
from k2mps.core.objects import Entry, Objects, folders_of
from k2mps.core.pins import Pin
from k2mps.core.progress import Reporter
from k2mps.core.project import exclusive
from k2mps.series import patch_text

BRANCH = "k2-mps"
BRANCH_REF = f"refs/heads/{BRANCH}"
# Matches only the name of the branch.  The brackets make it a pattern.  Without a pattern, `git
# rev-parse --branches` would list only branches whose names begin with "k2-mps/".
_BRANCH_PATTERN = f"[{BRANCH[0]}]{BRANCH[1:]}"

# A file in the git directory of a clone that the tool has made.
OWN_MARK = "k2mps-own"

# Attributes by which git stores something else than the files' contents.
_STORING = ("filter", "ident", "working-tree-encoding")
# The values of the attribute `merge` with which git merges lines, or reports a conflict.
_MERGING = ("set", "text", "binary")


class Commit(NamedTuple):
    id: str
    parents: tuple[str, ...]
    tree: str
    committer: str  # "NAME <EMAIL>"
    author: str  # "NAME <EMAIL>"
    date: str  # the author's date, as in mail: "Tue, 14 Nov 2023 23:13:20 +0100"
    when: str  # the same date as git stores it: "1700000000 +0100"
    message: str

    @property
    def ours(self) -> bool:
        """Whether the tool made the commit.  If a user amends the commit, the committer changes."""
        return self.committer == patch_text.FROM

    def __str__(self) -> str:
        return f"{self.id[:12]} {self.subject}"

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0]


class Differences(NamedTuple):
    """The files of a checkout that differ from HEAD."""

    edited: list[str]  # the tracked files that differ from HEAD, staged or not
    untracked: list[str]  # the files that git neither tracks nor ignores
    # The edited files of which the index has a version that neither HEAD nor the folder has.
    staged_only: list[str]
    unmerged: list[str]  # the edited files in which git has left conflicts


class Change(NamedTuple):
    """A change that a commit makes in one file."""

    path: str
    old: Entry | None  # before the commit; None if the commit adds the file
    new: Entry | None  # after the commit; None if the commit deletes the file


@dataclasses.dataclass(frozen=True)
class Head:
    """The commit and branch of a checkout."""

    # The ids of the commit that is checked out, and of its tree.
    commit: str
    tree: str
    branch: str  # full name of the branch; empty if HEAD is detached
    tip: str  # the commit of branch k2-mps; empty if there is no such branch


class Checkout:
    """A working tree of k2 and the repository it belongs to.

    Attributes:
      directory: the top directory, an absolute path without symbolic links.
      git_dir: the git directory; each linked worktree has a git directory of its own.
      common_dir: the git directory that all linked worktrees share.
      own: whether the tool made the clone.
      git: runs git in the working tree.
    Raises:
      K2mpsError: `directory` is not the top of a working tree.
    """

    def __init__(self, directory: Path, reporter: Reporter = Reporter()):
        self.directory = Path(directory)
        self.reporter = reporter
        folder = git.Git(self.directory, reporter=reporter)
        # --show-cdup prints the way to the top, which is empty at the top.
        options = ("--is-inside-work-tree", "--show-cdup", "--absolute-git-dir")
        result = folder.run("rev-parse", *options)
        # The path of the git directory comes last, because it may contain newlines.
        inside, _, rest = os.fsdecode(result.stdout).partition("\n")
        up, _, git_dir = rest.partition("\n")
        if inside != "true" or up:
            # Without a working tree, git prints no way to the top, not even an empty line.
            why = "it is a git directory, which has no files of k2"
            if inside == "true":
                why = f"it is a folder inside a checkout, {up} leads to its top"
            raise errors.K2mpsError(
                f"{self.directory} is not the top of a git checkout",
                why=result.stderr or why,
                next_command="correct what git complains of, or give the top directory of a clone"
                " of k2 as K2; then run the same command again",
            )
        self.directory = self.directory.resolve()
        self.git_dir = Path(git_dir.removesuffix("\n"))
        # In a linked worktree's git directory, the file `commondir` has the path of the common git
        # directory.
        link = self.git_dir / "commondir"
        self.common_dir = self.git_dir
        if link.exists():
            self.common_dir = self.git_dir / link.read_text().strip()
        self.own = (self.git_dir / OWN_MARK).exists()
        self.git = git.Git(self.directory, self.git_dir, literal=self.own, reporter=reporter)
        self._ancestry: set[tuple[str, str]] = set()  # see `is_ancestor`

    @functools.cached_property
    def objects(self) -> Objects:
        """Runs git on the repository's commits and trees; stores new ones in the repository."""
        self._check_whole()
        store = self.common_dir / "objects"
        shallow = self.common_dir / "shallow"
        return Objects(store, shallow, self.directory, self.reporter)

    @functools.cached_property
    def _settings(self) -> dict[str, str]:
        """The values of git's settings that the tool reads, by name in lower case."""
        pattern = (
            r"^(core\.(sparsecheckout|commentchar|commentstring)|remote\..*\.promisor"
            r"|user\.(name|email)|commit\.cleanup)$"
        )
        output = self.git.run("config", "-z", "--get-regexp", pattern).stdout
        settings = {}
        for entry in output.decode("utf-8", "replace").split("\0")[:-1]:
            name, _, value = entry.partition("\n")
            settings[name] = value
        return settings

    def _check_whole(self) -> None:
        """Raises an error for a sparse checkout or a partial clone."""
        for name, value in self._settings.items():
            is_of_messages = name.startswith(("user.", "core.comment", "commit."))
            if is_of_messages or value.lower() in ("false", "no", "off", "0"):
                continue
            kind, advice = "partial clone", "give a clone that was made without --filter"
            if name.startswith("core"):
                kind, advice = "sparse checkout", f"{self.git_command} sparse-checkout disable"
            raise errors.K2mpsError(
                f"{self.directory} is a {kind} of k2",
                why="the patches need every file and every blob",
                next_command=advice,
            )

    def pinned(self, pin: Pin) -> Pin:
        """Returns the pin with the id of a commit, even if `pin.commit` is the id of a tag.

        Raises:
          K2mpsError: the repository lacks the commit.
        """
        commit = self.commit_of(pin.commit)
        if not commit:
            url = git.redacted(pin.url)
            raise errors.K2mpsError(
                f"{self.directory} does not have the pinned commit {pin.commit}",
                why="it is another repository, an older clone, or a shallow one",
                next_command=f"{self.git_command} fetch {quoted(url)} {pin.commit}",
            )
        return pin._replace(commit=commit)

    def commit_of(self, name: str, kind: str = "commit") -> str | None:
        """Returns the id of the commit to which `name` leads, or the id of that commit's tree.

        Args:
          kind: "commit" or "tree".
        Returns:
          The id, or None if the repository lacks it.
        """
        result = self.git.run("rev-parse", "--verify", "--quiet", f"{name}^{{{kind}}}")
        return os.fsdecode(result.stdout).strip() or None

    def tree_of(self, commit: str) -> str:
        """Returns the id of a commit's tree; raises an error if the repository lacks the commit."""
        return self.objects.text("rev-parse", "--verify", f"{commit}^{{tree}}")

    def head(self) -> Head:
        """Returns the commit and branch of the checkout."""
        lines = self.git.text(
            "rev-parse",
            "HEAD^{commit}",
            "HEAD^{tree}",
            f"--branches={_BRANCH_PATTERN}",
            "--symbolic-full-name",
            "HEAD",
        ).splitlines()
        commit, tree = lines[:2]
        tip = lines[2] if len(lines) == 4 else ""
        branch = "" if lines[-1] == "HEAD" else lines[-1]
        return Head(commit, tree, branch, tip)

    def check_index(self) -> None:
        """Raises an error if there is no index.  Without an index, git regards all files as new."""
        if not (self.git_dir / "index").exists():
            raise errors.K2mpsError(
                f"{self.git_dir / 'index'} is missing",
                why="it was deleted, or the clone was made without files",
                next_command=f"{self.git_command} reset, which makes it and changes no"
                " file; then run the same command again",
            )

    def other_user(self, branch: str) -> str:
        """Returns another worktree that has a branch checked out, or rebases or bisects it; empty
        if there is none.

        Args:
          branch: the full name.
        """
        checked_out_in = self.git.text("for-each-ref", "--format=%(worktreepath)", branch)
        if os.path.exists(checked_out_in) and Path(checked_out_in).resolve() != self.directory:
            return checked_out_in
        names = (branch, branch.removeprefix("refs/heads/"))  # A bisection has the short name.
        common = self.common_dir.resolve()
        for folder in {common, *common.glob("worktrees/*")} - {self.git_dir.resolve()}:
            # In the git directory of a linked worktree, this file has the path of the file `.git`.
            link = folder / "gitdir"
            dot_git = folder / link.read_text().strip() if link.is_file() else folder
            worktree = dot_git.parent
            for name in ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"):
                file = folder / name
                if worktree.exists() and file.is_file() and file.read_text().strip() in names:
                    return str(worktree)
        return ""

    def changed_files(self, untracked: str = "no") -> Differences:
        """Lists the edited and the new files.

        Args:
          untracked: which new files to list: "no" for none; "normal" for all, with one entry
            for a directory without tracked files; "all" for each single file.
        """
        output = self.git.bytes(
            "status",
            "--porcelain=v1",
            "-z",
            "--no-renames",
            "--ignore-submodules=none",
            f"--untracked-files={untracked}",
        )
        entries = git.split_z(output)
        # The first letter tells how the index differs from HEAD, the second how the file differs
        # from the index.
        tracked = [entry for entry in entries if not entry.startswith("??")]
        return Differences(
            [entry[3:] for entry in tracked],
            [entry[3:] for entry in entries if entry.startswith("??")],
            [entry[3:] for entry in tracked if entry[0] in "MAT" and entry[1] in "MDT"],
            [entry[3:] for entry in tracked if "U" in entry[:2] or entry[:2] in ("AA", "DD")],
        )

    def exchanged(self, edited: Sequence[str]) -> list[str]:
        """Returns the edited files that have become folders, or whose folders have become files.

        `git stash`, `restore` and `checkout` delete the new folders and files, if git does not
        track them.
        """
        return [path for path in edited if _is_exchanged(self.directory, path)]

    def untracked_files(self) -> list[str]:
        """Returns the files that git neither tracks nor ignores."""
        return self.changed_files("all").untracked

    @property
    def git_command(self) -> str:
        """`git -C DIRECTORY`, with which a git command for the user begins."""
        return f"git -C {quoted(self.directory)}"

    def comment_mark(self) -> str:
        """Returns what begins a line that a rebase drops from a message; empty if there is none."""
        if self._settings.get("commit.cleanup") == "scissors":
            return ""
        text = self._settings.get("core.commentstring")
        letter = self._settings.get("core.commentchar")
        mark = text or letter or "#"
        return "#" if mark == "auto" else mark

    def check_attributes(self, paths: Iterable[str], in_rebase: bool = False) -> None:
        """Raises an error if git's attributes would change what a patch says of files.

        Args:
          in_rebase: whether `git rebase` merges the files; it has the user's configuration.
        """
        runner, attributes = self.git, _STORING
        if in_rebase:
            runner = git.Git(self.directory, self.git_dir, reporter=self.reporter)
            attributes = ("merge", *_STORING)
        stdin = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
        output = runner.bytes("check-attr", "-z", "--stdin", *attributes, stdin=stdin)
        fields = git.split_z(output)
        for at in range(0, len(fields), 3):
            path, attribute, value = fields[at : at + 3]
            is_own_merge = attribute == "merge" and value in _MERGING
            if value not in ("unspecified", "unset") and not is_own_merge:
                show = f"{self.git_command} check-attr {attribute} -- {git.pathspecs([path])}"
                own = quoted(self.common_dir / "info/attributes")
                raise errors.K2mpsError(
                    f"the git attribute {attribute}={value} applies to {path}",
                    why="with it, git does not store or merge the file as it is, so a patch might"
                    " lose edits",
                    next_command=f"remove the attribute from {own}, .gitattributes or the file that"
                    f" core.attributesFile names, until {show} prints unspecified; then the same"
                    " command again",
                )

    def check_merge(self, base: str, *tips: str) -> None:
        """Raises an error if git's attributes would change what git merges.

        Args:
          base, tips: git merges the files that differ between the commit `base` and the others.
        """
        paths = {path for tip in tips for path in self.changed_paths(base, tip)}
        self.check_attributes(sorted(paths), in_rebase=True)

    def commits(self, *revisions: str) -> list[Commit]:
        """Returns the commits that `git log --first-parent` lists for these arguments, the oldest
        first."""
        output = self.objects.bytes(
            "log",
            "-z",
            "--reverse",
            "--first-parent",
            "--no-notes",
            "--no-decorate",
            "--format=%H%x00%P%x00%T%x00%cn <%ce>%x00%an <%ae>%x00%aD%x00%ad%x00%B",
            "--date=raw",
            *revisions,
            "--",
        )
        fields = git.split_z(output)
        commits = []
        for at in range(0, len(fields), 8):
            id_, parents, tree, committer, author, date, when, message = fields[at : at + 8]
            commits.append(
                Commit(id_, tuple(parents.split()), tree, committer, author, date, when, message)
            )
        return commits

    def is_ancestor(self, commit: str, tip: str) -> bool:
        """Whether `commit` is `tip` or one of its ancestors; False if the repository lacks it."""
        if commit == tip or (commit, tip) in self._ancestry:
            return True
        result = not self.objects.run("merge-base", "--is-ancestor", commit, tip).status
        if result:
            # A fetch may bring a commit that is missing, so only True stays right.
            self._ancestry.add((commit, tip))
        return result

    def changed_paths(self, old: str, new: str) -> list[str]:
        """Returns the files that differ between two commits or trees."""
        output = self.objects.bytes(
            "diff-tree", "-r", "-z", "--no-renames", "--name-only", old, new
        )
        return git.split_z(output)

    def changes_of(self, commits: Sequence[Commit]) -> dict[str, list[Change]]:
        """Returns the changes of each commit against its first parent, by the commit's id."""
        output = self.objects.bytes(
            "diff-tree",
            "--stdin",
            "--always",
            "-r",
            "-z",
            "--no-renames",
            "--raw",
            stdin=stdin_of(commits),
        )
        changes_by_id: dict[str, list[Change]] = {}
        changes: list[Change] = []
        fields = iter(git.split_z(output))
        for field in fields:
            if field.startswith(":"):
                old_mode, new_mode, old_id, new_id, _ = field[1:].split(" ")
                old = Entry(old_mode, old_id) if int(old_mode) else None
                new = Entry(new_mode, new_id) if int(new_mode) else None
                changes.append(Change(next(fields), old, new))
            else:
                changes = changes_by_id[field] = []
        return changes_by_id

    def user(self) -> tuple[str, str]:
        """Returns the user's name and email address in git's configuration; each may be empty."""
        name = self._settings.get("user.name", "")
        email = self._settings.get("user.email", "")
        return name.strip(), email.strip()

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which no other run of the tool reads or changes this checkout."""
        return exclusive(self.git_dir, str(self.directory))

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context, for builds, in which no other run of the tool changes this checkout.

        Several builds can be in such a context at once.
        """
        return exclusive(self.git_dir, str(self.directory), reading=True)


def _is_exchanged(checkout: Path, path: str) -> bool:
    """Whether a file of the checkout's commit has become a folder, or one of its folders a file.

    Args:
      path: the file's path in the commit.
    """
    file = checkout / path
    if file.is_dir() and not file.is_symlink():
        return True
    folders = [checkout / folder for folder in folders_of(path)]
    return any(os.path.lexists(folder) and not folder.is_dir() for folder in folders)


def stdin_of(commits: Sequence[Commit]) -> bytes:
    """Returns the input of `git diff-tree --stdin`: a line for each commit and its first parent."""
    return "".join(f"{commit.id} {commit.parents[0]}\n" for commit in commits).encode()
