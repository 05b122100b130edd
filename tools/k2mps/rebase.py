"""Carrying the series to another upstream commit.

Each patch is picked onto the new commit with a true 3-way merge, in a worktree
of its own under build/, so that a conflict is in nobody's tree.  Where one
needs a decision the rebase stops, says why, and goes on with `advance`.  Only
when every patch is through are patches/ and the pin written, all at once.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path
from typing import Optional

from k2mps import (
    errors,
    git,
    interrupts,
    operations,
    patchset,
    resolutions,
    series,
)
from k2mps.apply import check_lock
from k2mps.checkout import Checkout, Commit, Move
from k2mps.commits import commit_series
from k2mps.conflict import Explainer, Place
from k2mps.merging import Merger, changes_of
from k2mps.project import Project, exclusive
from k2mps.upstream import Pin

_VERSION = re.compile(rb'^set\(K2_VERSION "?([0-9.]+)"?\)', re.MULTILINE)
_STATE = "k2mps-rebase.json"

# With the base between the sides a conflict tells what upstream changed.
_PICK = (
    "-c", "merge.conflictStyle=diff3", "-c", "merge.renames=true",
    "-c", "merge.directoryRenames=false", "-c", "rerere.enabled=false",
    "cherry-pick", "--no-commit",
)


@dataclasses.dataclass(frozen=True)
class Rebased:
    """What a rebase did.

    Attributes:
      pin: the new pin.
      patches: names of the patches, in order.
      written, removed: paths under patches/ that changed.
      dropped: names of patches that upstream has.
      resolved: conflicts that were resolved as an earlier time, as
        "patch: path".
    """

    pin: Pin
    patches: tuple[str, ...]
    written: tuple[str, ...]
    removed: tuple[str, ...]
    dropped: tuple[str, ...]
    resolved: tuple[str, ...]


@dataclasses.dataclass
class _State:
    """How far a rebase is; kept in the worktree's git directory.

    Attributes:
      checkout: the directory of the checkout it was begun with.
      command: as the log will show it.
      onto, old_pin: the new pin's commit and the old one's.
      head: the last patch that is through, or `onto`.
      todo: commits of the series that are still to be picked.
      dropped, resolved: as in `Rebased`.
      conflicts: files with conflicts, and where their text is kept as git
        left it.
      empty: whether it stopped because a patch has become empty.
    """

    checkout: str
    command: str
    onto: str
    old_pin: str
    head: str
    todo: list[str]
    dropped: list[str]
    resolved: list[str]
    conflicts: dict[str, str]
    empty: bool = False


def start(
    project: Project,
    checkout: Checkout,
    onto: str,
    drop_upstreamed: bool = False,
) -> Rebased:
    """Begins a rebase and goes on as far as possible.

    Args:
      onto: any name of an upstream commit that the checkout's git, or
        upstream, understands.
      drop_upstreamed: drop patches that change nothing any more.
    Raises:
      RebaseStoppedError: a decision is needed; `advance` or `abort` next.
        After any other error all is as before.
      CommitMissingError: there is no such commit.
      LockMismatchError, UserCommitsError: patches/ is not locked, or the
        branch has work that is not in patches/.
    """
    with _Locks(project, checkout):
        _forget_killed(project, checkout)
        if project.rebase.exists():
            raise errors.RebaseStoppedError(
                f"a rebase is under way in {project.rebase}",
                next_command="k2mps rebase --continue, or --abort",
            )
        pinned = project.upstream()
        found = series.load(project.patches)
        check_lock(pinned, found)
        _check_exported(checkout, pinned.pin)
        target = _resolve(checkout, pinned.pin, onto)
        tip = commit_series(checkout, pinned.pin, found)
        todo = checkout.commits(f"{pinned.pin.commit}..{tip}")
        state = _State(
            str(checkout.directory), f"rebase --onto {onto}", target,
            pinned.pin.commit, target, [commit.id for commit in todo], [],
            [], {},
        )
        project.build_root.mkdir(exist_ok=True)
        try:
            _add_worktree(project, checkout, target)
            rebase = _Rebase(project, checkout, state)
            rebase.save()
            return rebase.run(drop_upstreamed)
        except errors.RebaseStoppedError:
            raise
        except BaseException:
            # Nobody has decided anything yet that could be lost.
            with interrupts.deferred():
                _remove(project, checkout)
            raise


def advance(
    project: Project, checkout: Checkout, drop_upstreamed: bool = False
) -> Rebased:
    """Goes on after a stop.

    Raises:
      RebaseStoppedError: conflicts are left, the next patch stops too, or
        there is no rebase to go on with.
    """
    with _Locks(project, checkout):
        rebase = _Rebase.under_way(project, checkout)
        rebase.take_resolution(drop_upstreamed)
        return rebase.run(drop_upstreamed)


def abort(project: Project, checkout: Checkout) -> None:
    """Ends a rebase; all is as before it.

    Raises:
      RebaseStoppedError: there is none.
    """
    with _Locks(project, checkout):
        if not project.rebase.exists():
            raise _no_rebase()
        _remove(project, checkout)


class _Locks:
    """Keeps other runs away from the project and the checkout."""

    def __init__(self, project: Project, checkout: Checkout):
        self._project = project
        self._outer = exclusive(project.root, str(project.root))
        self._checkout = checkout
        self._inner = checkout.exclusive()

    def __enter__(self) -> None:
        self._outer.__enter__()
        try:
            operations.recover(self._project)
            self._inner.__enter__()
            self._checkout.recover()
        except BaseException:
            self._outer.__exit__(None, None, None)
            raise

    def __exit__(self, *exception) -> None:
        self._inner.__exit__(*exception)
        self._outer.__exit__(*exception)


class _Rebase:
    """A rebase in its worktree."""

    def __init__(self, project: Project, checkout: Checkout, state: _State):
        self._project = project
        self._checkout = checkout
        self._state = state
        # The files are the blobs' bytes, whatever the user's line ends are.
        self._git = git.Git(
            project.rebase, literal=True, reporter=checkout.reporter
        )
        self._file = _git_dir(project) / _STATE

    @staticmethod
    def under_way(project: Project, checkout: Checkout) -> "_Rebase":
        """The rebase that has stopped.

        Raises:
          RebaseStoppedError: there is none.
        """
        if not project.rebase.exists():
            raise _no_rebase()
        try:
            text = (_git_dir(project) / _STATE).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise errors.RebaseStoppedError(
                f"the rebase in {project.rebase} was killed as it began",
                next_command="k2mps rebase --abort, then begin it again",
            ) from None
        state = _State(**json.loads(text))
        if state.checkout != str(checkout.directory):
            raise errors.RebaseStoppedError(
                f"the rebase under way is of the checkout {state.checkout}",
                next_command=f"give --k2 {state.checkout} as when it began",
            )
        return _Rebase(project, checkout, state)

    def save(self) -> None:
        """Writes how far it is; a kill leaves the old or the new state."""
        draft = self._file.with_suffix(".draft")
        draft.write_text(
            json.dumps(dataclasses.asdict(self._state)), encoding="utf-8"
        )
        os.replace(draft, self._file)

    def run(self, drop_upstreamed: bool) -> Rebased:
        """Picks what is left, then writes patches/ and the pin."""
        while self._state.todo:
            (commit,) = self._checkout.commits("-1", self._state.todo[0])
            if not self._state.empty:
                self._pick(commit)
            self._commit(commit, drop_upstreamed)
        return self._finish()

    def _pick(self, commit: Commit) -> None:
        """Merges one commit into the worktree.

        Raises:
          RebaseStoppedError: there are conflicts.
        """
        self._git.bytes("reset", "--quiet", "--hard", self._state.head,
                        work_tree=True)
        for change in changes_of(self._checkout, commit):
            if change.old_id is None:
                # What a killed run left of this very patch is untracked.
                (self._project.rebase / change.path).unlink(missing_ok=True)
        result = self._git.run(*_PICK, commit.id, work_tree=True)
        unmerged = self._unmerged()
        if result.status != 0 and not unmerged:
            raise errors.GitError(
                f"git cherry-pick failed in {self._project.rebase}",
                why=result.stderr,
            )
        name = patchset.name_of(commit)
        store = resolutions.Store(self._project.resolutions, name)
        self._state.conflicts = {}
        for path in unmerged:
            if not self._replay(store, path):
                self._keep(path)
        if self._state.conflicts:
            self.save()
            raise self._stopped(commit, list(self._state.conflicts))
        self._state.resolved += [f"{name}: {path}" for path in unmerged]

    def _unmerged(self) -> list[str]:
        output = self._git.bytes(
            "diff", "--name-only", "--diff-filter=U", "-z", work_tree=True
        )
        return list(dict.fromkeys(git.split_z(output)))

    def _replay(self, store: resolutions.Store, path: str) -> bool:
        """Resolves a file as an earlier time, where that is known."""
        file = self._project.rebase / path
        if not file.is_file():
            return False
        text = file.read_bytes()
        resolved = store.resolve(text)
        if resolved is None or not resolutions.has_markers(text):
            return False
        file.write_bytes(resolved)
        self._git.bytes("add", "--", path, work_tree=True)
        return True

    def _keep(self, path: str) -> None:
        """Keeps the conflicting text, to learn from its resolution."""
        file = self._project.rebase / path
        kept = ""
        if file.is_file() and resolutions.has_markers(file.read_bytes()):
            number = len(self._state.conflicts)
            kept = f"k2mps-conflict-{number}"
            shutil.copy(file, _git_dir(self._project) / kept)
        self._state.conflicts[path] = kept

    def take_resolution(self, drop_upstreamed: bool) -> None:
        """Stages what the user has made of the conflicts, and learns it.

        Raises:
          RebaseStoppedError: a conflict is left.
        """
        if not self._state.conflicts:
            return
        unmerged = self._unmerged()
        left = [
            path
            for path in self._state.conflicts
            if self._has_markers(path)
            # Only the user can tell whether such a file is to stay.
            or (path in unmerged and not self._state.conflicts[path])
        ]
        if left:
            raise errors.RebaseStoppedError(
                f"conflicts are left in {', '.join(left)}",
                next_command=f"edit them in {self._project.rebase}, git add"
                " or git rm them there, then k2mps rebase --continue",
            )
        (commit,) = self._checkout.commits("-1", self._state.todo[0])
        store = resolutions.Store(
            self._project.resolutions, patchset.name_of(commit)
        )
        for path, kept in self._state.conflicts.items():
            file = self._project.rebase / path
            if kept and file.is_file():
                store.remember(
                    (_git_dir(self._project) / kept).read_bytes(),
                    file.read_bytes(),
                )
        self._git.bytes("add", "--update", work_tree=True)
        # From here on the tree is what the patch is to give.
        self._commit(commit, drop_upstreamed)

    def _has_markers(self, path: str) -> bool:
        file = self._project.rebase / path
        return file.is_file() and resolutions.has_markers(file.read_bytes())

    def _commit(self, commit: Commit, drop_upstreamed: bool) -> None:
        """Commits the worktree's index as the next patch."""
        tree = self._checkout.tree_of(self._state.head)
        new = self._git.text("write-tree")
        if new == tree and not drop_upstreamed:
            self._state.empty = True
            self._state.conflicts = {}
            self.save()
            raise self._became_empty(commit)
        if new == tree:
            self._state.dropped.append(patchset.name_of(commit))
        else:
            date = self._git.text(
                "log", "-1", "--format=@%ct +0000", self._state.onto
            )
            self._state.head = self._git.text(
                "commit-tree", new, "-p", self._state.head,
                stdin=os.fsencode(commit.message),
                environment={"GIT_AUTHOR_DATE": date,
                             "GIT_COMMITTER_DATE": date},
            )
        del self._state.todo[0]
        self._state.conflicts = {}
        self._state.empty = False
        self.save()

    def _finish(self) -> Rebased:
        onto = self._state.onto
        commits = self._checkout.commits(f"{onto}..{self._state.head}")
        pin = _pin(self._checkout, self._project.upstream().pin, onto)
        plan = patchset.plan(self._project, self._checkout, commits, pin)
        if plan.changed or plan.removed:
            operations.carry_out(
                self._project, self._checkout,
                operations.record(self._project, self._checkout,
                                  self._state.command),
                changed=plan.changed, removed=plan.removed,
                move=Move.stay({}),
                reason="rebase",
            )
        _remove(self._project, self._checkout)
        return Rebased(
            pin, plan.patches, plan.written, plan.removed,
            tuple(self._state.dropped), tuple(self._state.resolved),
        )

    def _stopped(
        self, commit: Commit, paths: list[str]
    ) -> errors.RebaseStoppedError:
        places = self._explain(commit, paths)
        lines = [line for place in places for line in place.lines()]
        return errors.RebaseStoppedError(
            f"patches/{patchset.name_of(commit)} conflicts with"
            f" {self._state.onto[:12]} in {', '.join(paths)}",
            why="\n".join(lines),
            next_command=f"edit the files in {self._project.rebase}, then"
            " k2mps rebase --continue; or k2mps rebase --abort",
        )

    def _became_empty(self, commit: Commit) -> errors.RebaseStoppedError:
        lines = [
            str(culprit)
            for place in self._explain(commit)
            for culprit in place.commits
        ]
        return errors.RebaseStoppedError(
            f"patches/{patchset.name_of(commit)} changes nothing any more on"
            f" {self._state.onto[:12]}",
            why="\n".join(
                ["upstream has it already", *dict.fromkeys(lines)]
            ),
            next_command="k2mps rebase --continue --drop-upstreamed, to drop"
            " it; or k2mps rebase --abort",
        )

    def _explain(
        self, commit: Commit, paths: Optional[list[str]] = None
    ) -> list[Place]:
        explainer = Explainer(
            self._checkout, Merger(self._checkout), self._state.old_pin,
            self._state.onto,
        )
        return explainer.explain(commit, paths)


def _git_dir(project: Project) -> Path:
    """The git directory of the rebase's worktree."""
    link = (project.rebase / ".git").read_text(encoding="utf-8")
    return project.rebase / link.removeprefix("gitdir: ").rstrip("\n")


def _add_worktree(
    project: Project, checkout: Checkout, commit: str
) -> None:
    result = checkout.git.run(
        "worktree", "add", "--quiet", "--detach", str(project.rebase), commit
    )
    if result.status == 0:
        return
    # git says no more than this, and removes what it has written.
    full = "unable to write file" in result.stderr
    kind = errors.DiskFullError if full else errors.GitError
    raise kind(
        f"no worktree of k2 could be made in {project.rebase}"
        + (": no space left on device" if full else ""),
        why=result.stderr,
        next_command="free some space, then run the same command again"
        if full else "",
    )


def _no_rebase() -> errors.RebaseStoppedError:
    return errors.RebaseStoppedError(
        "there is no rebase under way",
        next_command="k2mps rebase --onto REV",
    )


def _remove(project: Project, checkout: Checkout) -> None:
    """Removes the worktree, however much of it there is."""
    shutil.rmtree(project.rebase, ignore_errors=True)
    checkout.git.bytes("worktree", "prune")


def _forget_killed(project: Project, checkout: Checkout) -> None:
    """Removes a worktree whose rebase was killed before it had begun."""
    try:
        begun = (_git_dir(project) / _STATE).exists()
    except (FileNotFoundError, NotADirectoryError):
        begun = False
    if not begun and project.rebase.exists():
        _remove(project, checkout)


def _check_exported(checkout: Checkout, pin: Pin) -> None:
    tip = checkout.branch_tip()
    users = checkout.unexported(pin.commit, tip) if tip else []
    if users:
        raise errors.UserCommitsError(
            f"branch k2-mps of {checkout.directory} has commits that are not"
            " in patches/",
            why="a rebase would leave them on the old pin: "
            + "; ".join(f"{commit.id[:12]} {commit.subject}"
                        for commit in users),
            next_command="k2mps export, then run the same command again",
        )


def _resolve(checkout: Checkout, pin: Pin, name: str) -> str:
    """The commit that is meant, fetched if need be."""
    commit = checkout.commit_of(name)
    if commit:
        return commit
    try:
        checkout.git.network(
            f"fetching {name}", "fetch", "--no-tags", pin.url, name
        )
    except errors.UnreachableError as error:
        raise errors.CommitMissingError(
            f"neither {checkout.directory} nor {git.redacted(pin.url)} has a"
            f" commit {name}",
            why=error.why,
            next_command="give a full commit id, a tag or a branch of"
            " upstream's",
        ) from None
    return checkout.git.text("rev-parse", "FETCH_HEAD^{commit}")


def _pin(checkout: Checkout, old: Pin, commit: str) -> Pin:
    """The pin for a commit, with the version that k2 has there."""
    result = checkout.git.run("cat-file", "blob", f"{commit}:CMakeLists.txt")
    match = _VERSION.search(result.stdout)
    return Pin(
        old.url, commit, checkout.tree_of(commit),
        match[1].decode() if match else old.version,
    )
