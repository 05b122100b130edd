"""The only code that changes branch k2-mps, patches/ and the tool's ref.

`begin` locks the project and the checkout.  A `Transaction` reads their state once, and then
changes them in one order: branch k2-mps, patches/, upstream.toml, the tool's ref (see applied.py).
After a kill, the branch has all commits, so the same command writes the rest.

Each change names the state that it expects.  git moves the branch only if the branch still has the
commit that the transaction has read.  A file of patches/ is replaced only if its content is known
to be in the branch.
"""

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors, interrupts, objects, replacement
from k2mps.core.git import split_z
from k2mps.core.objects import Entry, File
from k2mps.core.pins import Pin
from k2mps.core.project import Project, exclusive
from k2mps.series import patch_folder, series_file
from k2mps.stack import applied, extraction, refusals, upstream
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Commit
from k2mps.stack.commits import series_tip
from k2mps.stack.extraction import Plan

# What git calls the old id of a ref that must not exist.
_NO_COMMIT = "0" * 40


class RefMove(NamedTuple):
    ref: str  # the full name
    new: str  # the commit that the ref gets
    old: str  # the commit that the ref must have; empty if the ref must not exist


@contextlib.contextmanager
def begin(project: Project, checkout: Checkout) -> Iterator["Transaction"]:
    """Locks the project and the checkout for the context.

    Raises:
      BusyError: another run of the tool uses the project or the checkout.
    """
    with exclusive(project.root, str(project.root)), checkout.exclusive():
        for folder in (project.root, project.patches):
            replacement.warn_of_kills(checkout.reporter, folder)
        yield Transaction(project, checkout)


class Transaction:
    """The state of the project and its checkout, and the changes of both.

    Without the locks of `begin`, a transaction may only be read.

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
    def entries(self) -> dict[str, Entry]:
        """The tree entries (mode and blob id) for `files`."""
        return applied.entries(self.files)

    @property
    def changed(self) -> list[str]:
        """The files of patches/ (or upstream.toml) that changed since patches/ was applied."""
        return applied.differing(self.applied.files, self.entries) if self.applied else []

    @property
    def tip_is_known(self) -> bool:
        """Whether patches/ is unchanged since it was applied; if so, the last commit exists."""
        return bool(self.applied) and not self.changed

    @functools.cached_property
    def tip(self) -> str:
        """The series' last commit; makes the commits if need be."""
        if self.tip_is_known:
            return self.applied.tip
        return series_tip(self.project, self.checkout, self.pin)

    @functools.cached_property
    def base(self) -> str:
        """The upstream commit on which branch k2-mps stands; empty if it is unknown.

        After a `git rebase`, this is another commit than the pin, until `k2mps export --onto`
        writes the pin.
        """
        tip = self.head.tip
        if not tip:
            return ""
        pin, is_ancestor = self.pin.commit, self.checkout.is_ancestor
        if self.tip_is_known and self.applied.tip == tip:
            return pin
        on_pin = is_ancestor(pin, tip)
        if self.applied and is_ancestor(self.applied.tip, tip):
            return pin if on_pin else ""  # The user has only added commits.
        upstream_commits = upstream.below_series(self.checkout, pin, tip) if on_pin else []
        if upstream_commits:  # git has rebased the branch onto a descendant of the pin.
            return upstream_commits[-1]
        for commit in upstream.rebase_bases(self.checkout, pin):
            # Below the pin, an earlier rebase may be the base only if the branch lacks the pin.
            if is_ancestor(commit, tip) and (not on_pin or is_ancestor(pin, commit)):
                return commit
        return pin if on_pin else ""

    def user_commits(self, tip: str = "", last: str = "") -> list[Commit]:
        """Returns the user's commits, which patches/ lacks.

        Args:
          tip: the last commit of the series; empty if the caller has not made it.
          last: the commit whose ancestors are searched; empty for that of branch k2-mps.
        """
        last = last or self.head.tip
        pin = self.pin.commit
        # Between the pin and the base, or the target of a rebase, all commits are upstream's.
        ends = [pin, self.base, upstream.rebase_target(self.checkout, pin), tip]
        if self.applied:
            ends.append(self.applied.tip)
        not_users = [commit for commit in ends if commit]
        if not last or last in not_users:
            return []
        above = self.checkout.commits(last, "--not", *not_users)
        # If the tool's ref is missing, the tool's commits do not count, because they may be another
        # version of the series.
        return [commit for commit in above if self.applied or not commit.ours]

    def check_pin(self) -> None:
        """Raises an error if upstream.toml has an older pin than the series that was applied.

        Then branch k2-mps stands on the pin, but its first commits are upstream's.
        """
        if "upstream.toml" in self.changed:
            first = self.checkout.commits(f"{self.pin.commit}..{self.applied.tip}")[:1]
            if first and not extraction.name_of(first[0]):
                raise refusals.changed_patches(self.project, ["upstream.toml"], "the command")

    def check_head(self) -> None:
        """Raises an error if HEAD is detached, and no branch or tag leads to the user's commits."""
        checkout, head = self.checkout, self.head
        lost = [] if head.branch else self.user_commits(self.tip, head.commit)
        # A stash does not count: `git stash pop` deletes its ref.
        options = ("--count=1", "--contains", head.commit)
        refs = ("refs/heads", "refs/tags", "refs/remotes")
        if lost and not checkout.git.text("for-each-ref", *options, *refs):
            raise refusals.lost_head(checkout, head, lost[-1])

    @functools.cached_property
    def in_branch(self) -> Mapping[str, Entry]:
        """The files of patches/ whose content branch k2-mps has, so that they may be replaced.

        If the branch contains all commits of the series, these are the current files of patches/.
        Otherwise, these are the files that the tool's ref has.
        """
        if self.tip_is_known:
            return self.entries
        with contextlib.suppress(errors.K2mpsError):
            # If another clone of k2-mps has applied the series, the tool's ref is missing.
            if self.checkout.is_ancestor(self.tip, self.head.tip):
                return self.entries
        return self.applied.files if self.applied else {}

    def plan(self, commits: Sequence[Commit], pin: Pin | None = None) -> Plan:
        """Plans the files of patches/ for commits, see `extraction.plan`.

        Args:
          pin: a new pin; None if it stays.
        """
        if self.project.patches.is_symlink():
            patch_folder.read(self.project.patches, "series")  # raises the error for a link
        if "patches/series" in self.files:
            try:
                series_file.parse(self.files["patches/series"].content)
            except errors.SeriesError:  # The groups are unknown, and so who may edit which file.
                raise refusals.changed_patches(
                    self.project, ["patches/series"], "the command"
                ) from None
        return extraction.plan(self.checkout, commits, self.files, self.project.upstream().pin, pin)

    def check_files(self, plan: Plan, command: str) -> None:
        """Raises an error if a plan would overwrite a file that someone has changed.

        Args:
          command: the command's name, for the message.
        """
        paths = (*plan.changed, *plan.removed)
        users = [path for path in paths if not self._may_replace(path, plan.files.get(path))]
        if users:
            raise refusals.changed_patches(self.project, users, command)

    def write(self, plan: Plan, tip: str, command: str) -> None:
        """Moves branch k2-mps, writes patches/, and records both.  No file of the checkout changes.

        Args:
          plan: the files; `tip` is the last commit that `apply` makes of them.
          command: the command's name, for messages and reflogs.
        """
        branch = RefMove(BRANCH_REF, tip, self.head.tip)
        if not (plan.changed or plan.removed):
            self.record(tip, plan.files, branch, command)
            return
        # The branch moves first: after a kill, it has what the files still lack, and the old ref
        # tells which files may be replaced.
        self._move([branch], command)
        for path in (*plan.changed, *plan.removed):
            if not self._may_replace(path, plan.files.get(path)):
                raise refusals.changed_patches(self.project, [path], command)
            self._write_file(path, plan.files)
        self.record(tip, plan.files, command=command)

    def switch(self, tip: str) -> None:
        """Checks out branch k2-mps at the last commit of the series, and records it.

        git changes the files, and refuses to overwrite an edit.  HEAD is detached until the branch
        has moved.

        Raises:
          K2mpsError: git refuses; or the branch has moved meanwhile.
        """
        checkout, head = self.checkout, self.head
        if head.commit == tip and not head.branch:
            # Perhaps an earlier run was here, but git could not write some files.
            before = checkout.commit_of("HEAD@{1}") or tip
            self.check_written(tip, before, head.tip or self.pin.commit)
        self._check_movable(tip)
        with interrupts.deferred():
            result = checkout.git.run("switch", "--quiet", "--detach", "--no-overwrite-ignore", tip)
            if result.status:
                raise refusals.refused_switch(checkout, head, tip, result.stderr)
            if result.stderr:  # git switches even if it could not write some files.
                self.check_written(tip, head.commit, why=result.stderr)
            try:
                self._move([RefMove(BRANCH_REF, tip, head.tip)], "apply")
            except errors.K2mpsError:
                old_branch = head.branch.removeprefix("refs/heads/")
                back = (old_branch,) if old_branch else ("--detach", head.commit)
                checkout.git.run("switch", "--quiet", *back)
                raise
            # The files stay as they are, unless the user has switched or committed meanwhile.
            options = ("--quiet", "--no-overwrite-ignore", "--ignore-other-worktrees")
            result = checkout.git.run("switch", *options, BRANCH)
            if result.status:
                raise refusals.refused_switch(checkout, head, tip, result.stderr)
            # If the user has committed on the detached HEAD, only the reflog has the commit, in
            # "checkout: moving from COMMIT to k2-mps".  A branch in its place stays what it is.
            moved = checkout.git.text("reflog", "-1", "--format=%gs", "HEAD")
            before_to, _, _ = moved.partition(" to ")
            last = before_to.split(" ")[-1]
            if last not in (tip, head.commit) and checkout.is_ancestor(tip, last):
                checkout.git.bytes("merge", "--quiet", "--ff-only", last)
        self.record(tip)

    def check_written(self, commit: str, *before: str, why: str = "") -> None:
        """Raises an error if git has not written some files when it checked out a commit.

        In `apply`, the branch then stays where it was, so that `new`, `fold` and `export` refuse.

        Args:
          before: the commits that may have been checked out before.
          why: git's messages.
        """
        checkout = self.checkout
        paths = {path for earlier in before for path in checkout.changed_paths(earlier, commit)}
        missed = [path for path in checkout.changed_files().edited if path in paths]
        if missed:
            raise refusals.unwritten(checkout, missed, why)

    def record(
        self,
        tip: str,
        contents: Mapping[str, File] | None = None,
        branch: RefMove | None = None,
        command: str = "apply",
    ) -> None:
        """Records in the tool's ref that `tip` is the last commit of the series in `contents`.

        Args:
          contents: patches/ and upstream.toml, as an export has written them; None for `files`.
          branch: a move of branch k2-mps, which happens together with the move of the ref.
          command: the command's name, for the reflogs.
        """
        old = self.applied
        entries = applied.entries(contents) if contents else self.entries
        if old and (old.tip, old.files) == (tip, entries):
            commit = old.id
        else:
            commit = applied.commit(self.checkout, old, contents or self.files, tip)
        # Another program may have written the ref, so it may exist even if `applied` is None.  git
        # overwrites the ref only if the update names the ref's old id.
        if old:
            old_id = old.id
        else:
            old_id = self.checkout.git.text("for-each-ref", "--format=%(objectname)", applied.REF)
        moves = [RefMove(applied.REF, commit, old_id)]
        if branch:
            moves.append(branch)
        self._move(moves, command)

    def _move(self, moves: Sequence[RefMove], command: str) -> None:
        """Moves refs, either all or none.

        Args:
          command: the command's name, for the reflogs.
        Raises:
          K2mpsError: a ref does not have its old id any more.
        """
        lines = [f"update {move.ref} {move.new} {move.old or _NO_COMMIT}\n" for move in moves]
        self._update_refs("".join(lines), "-m", f"k2mps {command}")

    def _check_movable(self, tip: str) -> None:
        """Raises an error if git cannot move HEAD and branch k2-mps to the commit `tip`.

        Without this check, `git switch` would fail only after it has written the files.
        """
        lines = ["start", f"update {BRANCH_REF} {tip} {self.head.tip or _NO_COMMIT}"]
        # If HEAD is on the branch, git locks HEAD together with the branch.
        if self.head.branch != BRANCH_REF:
            lines += ["option no-deref", f"update HEAD {tip} {self.head.commit}"]
        self._update_refs("\n".join([*lines, "prepare", "abort", ""]))

    def check_in_the_way(self, commit: str, picked: Sequence[Commit] = ()) -> None:
        """Raises an error if git would delete the user's files when it checks out a commit.

        git overwrites ignored files.  Where the commit exchanges a file and a folder, git also
        deletes a new file that is staged, unless the user has edited it since.

        Args:
          picked: the commits that git then picks.
        """
        checkout = self.checkout
        staged = split_z(
            checkout.git.bytes(
                "diff-index",
                "--cached",
                "-z",
                "--no-renames",
                "--diff-filter=A",
                "--name-only",
                self.head.commit,
            )
        )
        ignored = split_z(
            checkout.git.bytes("ls-files", "-z", "--others", "--ignored", "--exclude-standard")
        )
        if not staged and not ignored:
            return
        paths = set(checkout.changed_paths(self.head.commit, commit))
        for changes in checkout.changes_of(picked).values():
            paths |= {change.path for change in changes}
        folders = {folder for path in paths for folder in objects.folders_of(path)}
        in_the_way = [
            path
            for path in (*staged, *ignored)
            if path in folders or not paths.isdisjoint([path, *objects.folders_of(path)])
        ]
        if in_the_way:
            staged_in_the_way = [path for path in in_the_way if path in staged]
            raise refusals.in_the_way(checkout, in_the_way, staged_in_the_way)

    def _update_refs(self, instructions: str, *options: str) -> None:
        """Runs `git update-ref`; raises an error if a ref does not have its old id any more.

        Args:
          instructions: the command's input.
        """
        words = ("update-ref", "--create-reflog", *options, "--stdin")
        result = self.checkout.git.run(*words, stdin=instructions.encode())
        if result.status and "but expected" in result.stderr:
            raise refusals.moved_branch(self.checkout, result.stderr)
        if result.status:
            raise self.checkout.git.failure(words, result)

    def _may_replace(self, path: str, new: File | None) -> bool:
        """Whether the file at `path` may be replaced by `new`; None deletes the file."""
        target = self.project.root / path
        folders = objects.folders_of(path)
        if any((self.project.root / folder).is_symlink() for folder in folders):
            return False
        if not os.path.lexists(target):
            return True
        if target.is_symlink() or not target.is_file():
            return False
        now = objects.read(target).entry
        return now == self.in_branch.get(path) or bool(new and now == new.entry)

    def _write_file(self, path: str, files: Mapping[str, File]) -> None:
        """Writes one of the files that patches/ is to have, or deletes a file that is not one."""
        root = self.project.root
        target = root / path
        if path in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            folder = self.project.patches if path.startswith("patches/") else root
            replacement.replace(target, files[path], folder)
        elif not _is_another_name(root, path, files):
            target.unlink(missing_ok=True)
            # Folders that are empty now go, the innermost first; patches/ itself stays.
            folders = objects.folders_of(path)[1:]
            with contextlib.suppress(OSError):
                for folder in reversed(folders):
                    (root / folder).rmdir()


def _is_another_name(root: Path, path: str, files: Mapping[str, File]) -> bool:
    """Whether a path and one of the paths of `files` lead to the same file.

    This is possible on a file system that ignores case or normalizes Unicode.
    """
    with contextlib.suppress(FileNotFoundError):
        for other in files:
            if patch_folder.folded(other) == patch_folder.folded(path):
                return os.path.samefile(root / other, root / path)
    return False
