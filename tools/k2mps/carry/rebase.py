"""Carrying the series to another upstream commit.

git rebases the patches in a worktree under build/, so that no conflict is in the user's checkout,
and remembers resolutions (rerere).  At a conflict the rebase stops and names the upstream commits
that touched the files; `advance` continues.  After the last patch, the rebase writes patches/ and
the pin together.

`merge` does the same on the same pin, with `git am --3way`, where git has merged patches of two
people without a conflict, and they do not apply to each other.
"""

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from k2mps.carry import branches
from k2mps.core import errors, git, interrupts, replacement
from k2mps.core.git import quoted
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.series.patch_text import FROM
from k2mps.stack import extraction, states, undo
from k2mps.stack.checkout import BRANCH, Checkout
from k2mps.stack.commits import AM, commit_date, mail_date, series_tip
from k2mps.stack.states import States

_VERSION = re.compile(rb'^set\(K2_VERSION "?([0-9.]+)"?\)', re.MULTILINE)
_MARKER = re.compile(rb"^<{7} .*^={7}.*^>{7} ", re.MULTILINE | re.DOTALL)
_REPLAYED = re.compile(r"^(?:Staged|Resolved) '(.*)' using previous resolution", re.MULTILINE)
_STATE = "k2mps-rebase.json"
# Every commit is picked, also one that upstream has: git drops what changes nothing there.
_REBASE = (
    "rebase --interactive --empty=drop --keep-empty --reapply-cherry-picks --no-rebase-merges"
    " --no-autosquash --no-autostash --no-fork-point"
).split()


class _State(NamedTuple):
    """How a rebase began, a file in the worktree's git directory."""

    checkout: str  # the directory of the checkout
    onto: str  # the commit of the new pin
    was: str  # the last commit of the series on the old pin; the pin, where the series has none
    patches: str  # the tree of patches/ and upstream.toml


class Rebased(NamedTuple):
    """The result of a rebase."""

    pin: Pin  # the new pin
    plan: extraction.Plan  # the written files
    differences: Sequence[str]  # the patches that changed, as `git range-diff` lists them


def start(project: Project, checkout: Checkout, onto: str) -> Rebased:
    """Begins a rebase onto a commit, by a name that upstream gives it.

    After a `ConflictError` the user decides, then calls `advance` or `abort`.  Any other error
    leaves everything as before.
    """
    with states.at_work(project, checkout, rebasing=True) as known:
        pin = project.upstream().pin
        _check_free(known, pin)
        target = branches.commit_of(checkout, pin, onto)
        tip = series_tip(project, checkout, pin, states=known)
        return _begin(project, checkout, tip, target, [*_REBASE, "--onto", target, pin.commit])


def merge(project: Project, checkout: Checkout) -> Rebased:
    """Makes the patches, which do not apply to one another, apply; as `start`, on the same pin."""
    with states.at_work(project, checkout, rebasing=True) as known:
        pin = project.upstream().pin
        _check_free(known, None)
        found = patch_folder.load(project.patches)
        date = mail_date(commit_date(checkout, pin.commit))
        mails = b"".join(patch.mail(found.files, date) for patch in found.patches)
        how = [*AM[:-1], "--3way"]
        return _begin(project, checkout, pin.commit, pin.commit, how, mails)


def _begin(
    project: Project,
    checkout: Checkout,
    commit: str,
    onto: str,
    arguments: Sequence[str],
    stdin: bytes = b"",
) -> Rebased:
    """Has git carry the series in a worktree that begins at a commit."""
    project.build_root.mkdir(exist_ok=True)
    try:
        undo.remember_resolutions(checkout)
        _add_worktree(project, checkout, commit)
        tree = states.snapshot(project, checkout)
        state = _State(str(checkout.directory), onto, commit, tree)
        replacement.rewrite(_git_dir(project) / _STATE, json.dumps(state))
        return _Rebase(project, checkout).run(arguments, stdin)
    except errors.ConflictError:
        raise
    except BaseException:
        # Nobody has decided anything yet that could be lost.
        with interrupts.deferred():
            checkout.remove_worktree(project.rebase)
        raise


def advance(project: Project, checkout: Checkout) -> Rebased:
    """Continues a rebase; a `ConflictError` says why it stops, or cannot go on."""
    with states.at_work(project, checkout, rebasing=True):
        rebase = _Rebase(project, checkout)
        rebase.check_unchanged()
        return rebase.run(rebase.take_resolution())


def abort(project: Project, checkout: Checkout) -> None:
    """Ends a rebase; everything is as before, and the resolutions are forgotten."""
    with states.at_work(project, checkout, rebasing=True):
        if not project.rebase.exists():
            raise _no_rebase()
        checkout.remove_worktree(project.rebase)
        undo.forget_resolutions(checkout)


class _Rebase:
    """The rebase in the project's worktree."""

    def __init__(self, project: Project, checkout: Checkout):
        if not project.rebase.exists():
            raise _no_rebase()
        self._project = project
        self._checkout = checkout
        # The files are the blobs' bytes, whatever the user's line ends are.
        self._git = git.Git(project.rebase, literal=True, reporter=checkout.reporter)
        self._git_dir = _git_dir(project)
        try:
            self._state = _State(*json.loads((self._git_dir / _STATE).read_text(encoding="utf-8")))
        except (FileNotFoundError, TypeError):
            raise errors.ConflictError(
                f"the rebase in {project.rebase} was killed as it began",
                why="or another version of k2mps began it",
                next_command="k2mps rebase --abort, then begin again",
            ) from None
        if self._state.checkout != str(checkout.directory):
            raise errors.ConflictError(
                f"the rebase in progress is of the checkout {self._state.checkout}",
                next_command=f"give --k2 {quoted(self._state.checkout)} as when it began",
            )

    def check_unchanged(self) -> None:
        """Refuses to continue where patches/ has changed since the start."""
        now = states.snapshot(self._project, self._checkout)
        changed = self._checkout.changed_paths(self._state.patches, now)
        if changed:
            raise errors.ConflictError(
                f"{errors.some(changed, 5)} changed since the rebase began",
                why="k2mps rebase --continue would overwrite these changes",
                next_command="git stash push --include-untracked patches upstream.toml, then k2mps"
                " rebase --continue, then git stash pop; or k2mps rebase --abort, and begin again",
            )

    @property
    def _tool(self) -> str:
        """The command of git that has stopped at a patch; empty where none has."""
        files = {"rebase": "rebase-merge/done", "am": "rebase-apply/next"}
        return next((tool for tool, name in files.items() if (self._git_dir / name).exists()), "")

    def run(self, arguments: Sequence[str], stdin: bytes = b"") -> Rebased:
        """Has git pick the remaining patches, then writes patches/ and the pin.

        Args:
          arguments: the command of git that does; empty where git has picked them all.
        """
        while arguments:
            when = {"GIT_COMMITTER_DATE": commit_date(self._checkout, self._state.onto)}
            result = self._git.run(*arguments, stdin=stdin, work_tree=True, environment=when)
            told = f"{os.fsdecode(result.stdout)}\n{result.stderr}".strip()
            if not self._tool:
                if result.status:
                    raise self._git.failure(arguments, result._replace(stderr=told))
                break
            name = self._name()
            for path in _REPLAYED.findall(told):
                self._checkout.reporter.info(f"resolved as before: {name}: {path}")
            if self._unmerged():
                raise self._conflict(told)
            arguments, stdin = self._next(told), b""
        return self._finish()

    def take_resolution(self) -> Sequence[str]:
        """Adds the user's version of the patch at which git stopped, if it can be kept; the command
        that goes on."""
        if not self._tool:
            return ()
        where = self._project.rebase
        # The patch would lack these.
        untracked = Checkout(where, self._checkout.reporter).untracked_files()
        if untracked:
            names = " ".join(shlex.quote(path) for path in untracked)
            raise errors.ConflictError(
                f"{', '.join(untracked[:5])} in {where} is not part of the patch",
                why="git does not track it there, and --continue would leave it behind",
                next_command=f"git -C {quoted(where)} add {names}, or delete it;"
                " then k2mps rebase --continue",
            )
        left = [path for path, stages in self._unmerged().items() if self._is_left(path, stages)]
        if left:
            raise errors.ConflictError(
                f"conflicts are left in {', '.join(left)}",
                next_command=f"edit them in {where}, git add or git rm them there, then k2mps"
                " rebase --continue",
            )
        self._git.bytes("add", "--update", work_tree=True)
        return self._next()

    def _next(self, told: str = "") -> Sequence[str]:
        """The command that keeps what is staged for a patch."""
        if not self._git.succeeds("diff", "--cached", "--quiet", work_tree=True):
            self._check_format()
            return (self._tool, "--continue")
        where = self._project.rebase
        raise errors.ConflictError(
            f"{self._place()} changes nothing in {where}",
            why="\n".join(re.findall(r"^error: (.*)$", told, re.MULTILINE))
            or "its resolution left nothing",
            next_command=f"make its changes there by hand, or drop it by git -C {quoted(where)}"
            f" {self._tool} --skip; then k2mps rebase --continue; or k2mps rebase --abort",
        )

    def _name(self) -> str:
        """The name of the patch at which git stopped."""
        if self._tool == "am":
            number = (self._git_dir / "rebase-apply/next").read_text()
            return patch_folder.load(self._project.patches).patches[int(number) - 1].name
        done = (self._git_dir / "rebase-merge/done").read_text().splitlines()
        (commit,) = self._checkout.commits("-1", done[-1].split(" ")[1])
        return extraction.name_of(commit)

    def _place(self) -> str:
        files = ("rebase-apply/next", "rebase-apply/last")
        if self._tool == "rebase":
            files = ("rebase-merge/msgnum", "rebase-merge/end")
        number, count = ((self._git_dir / name).read_text().strip() for name in files)
        return f"patch {number} of {count}, patches/{self._name()},"

    def _unmerged(self) -> dict[str, set[str]]:
        """The files with conflicts, and which of base, ours and theirs each has: 1, 2, 3."""
        found: dict[str, set[str]] = {}
        for entry in git.split_z(self._git.bytes("ls-files", "--unmerged", "-z")):
            facts, path = entry.split("\t", 1)
            found.setdefault(path, set()).add(facts[-1])
        return found

    def _is_left(self, path: str, stages: set[str]) -> bool:
        file = self._project.rebase / path
        if len(stages) < 3 and stages != {"2", "3"}:
            return True  # deleted on a side: only the user knows whether the file stays
        return file.is_file() and _MARKER.search(file.read_bytes()) is not None

    def _check_format(self) -> None:
        """Refuses what is staged for a patch, if a patch cannot have that: while it can still be
        corrected."""
        name = self._name()
        tree, head = self._git.text("write-tree"), self._git.text("rev-parse", "HEAD")
        now = f"{FROM} 0 +0000"
        made = self._checkout.store(tree, [head], f"{name}\n\nPatch-Filename: {name}\n", now, now)
        pin = self._project.upstream().pin._replace(commit=self._state.onto)
        commits = self._checkout.commits(f"{pin.commit}..{made}")
        try:
            extraction.plan(self._project, self._checkout, commits, pin)
        except errors.K2mpsError as error:
            raise errors.ConflictError(
                f"the resolution of patches/{name} cannot be kept: {error.what}",
                why=error.why,
                next_command=f"take that out again in {self._project.rebase}, then k2mps rebase"
                " --continue; a change of another patch can follow the rebase, by k2mps fold",
            ) from None

    def _conflict(self, told: str) -> errors.ConflictError:
        """The error that asks the user to resolve a conflict."""
        paths, onto = list(self._unmerged()), self._state.onto
        kinds = re.findall(r"^CONFLICT \(.*$", told, re.MULTILINE)
        way = f"{self._project.upstream().pin.commit}...{onto}"
        how = "log --full-history --no-merges --reverse --max-count=8 --abbrev=12".split()
        how.append("--format=touched by %h %cs %an: %s")
        culprits = self._checkout.git.text(*how, way, "--", *paths)
        return errors.ConflictError(
            f"{self._place()} conflicts with {onto[:12]} in {', '.join(paths)}",
            why="\n".join(filter(None, [*kinds, culprits])),
            next_command=f"edit the files in {self._project.rebase}, then k2mps rebase --continue;"
            " or k2mps rebase --abort",
        )

    def _finish(self) -> Rebased:
        project, checkout, onto = self._project, self._checkout, self._state.onto
        old = project.upstream().pin
        tip = self._git.text("rev-parse", "HEAD")
        pin = _pin(checkout, old, onto)
        plan = extraction.plan(project, checkout, checkout.commits(f"{onto}..{tip}"), pin)
        if plan.changed or plan.removed:
            States(project, checkout).carry_out(
                "apply" if onto == old.commit else f"rebase --onto {onto[:12]}",
                changed=plan.changed,
                removed=plan.removed,
                synced=False,
            )
        checkout.remove_worktree(project.rebase)
        if self._state.was == old.commit:
            return Rebased(pin, plan, ())
        ranges = (f"{old.commit}..{self._state.was}", f"{onto}..{tip}")
        lines = checkout.git.text("range-diff", "--no-color", "--no-patch", *ranges).splitlines()
        changed = [line for line in lines if not re.match(r"\s*\d+:\s+\w+ = ", line)]
        return Rebased(pin, plan, changed)


def _git_dir(project: Project) -> Path:
    link = (project.rebase / ".git").read_text(encoding="utf-8")
    return project.rebase / link.removeprefix("gitdir: ").rstrip("\n")


def _add_worktree(project: Project, checkout: Checkout, commit: str) -> None:
    checkout.git.bytes("worktree", "prune")
    # The files are the blobs' bytes.
    here = git.Git(checkout.directory, literal=True, reporter=checkout.reporter)
    arguments = ("worktree", "add", "--quiet", "--detach", str(project.rebase), commit)
    result = here.run(*arguments, work_tree=True)
    # git has removed what it wrote; its message is the only sign of a full disk.
    if "unable to write file" in result.stderr:
        raise git.no_space("worktree add", result.stderr)
    if result.status:
        raise here.failure(arguments, result)


def _no_rebase() -> errors.K2mpsError:
    return errors.K2mpsError("no rebase is in progress", next_command="k2mps rebase --onto REV")


def _check_free(known: States, pin: Pin | None) -> None:
    """Refuses to begin during another rebase or, with the old pin, beside commits that patches/
    lacks; removes the worktree of a rebase that was killed as it began."""
    project, checkout, tip = known.project, known.checkout, known.head.tip
    try:
        begun = (_git_dir(project) / _STATE).exists()
    except (FileNotFoundError, NotADirectoryError):
        begun = False
    if not begun and project.rebase.exists():
        checkout.remove_worktree(project.rebase)
    states.check_no_rebase(project)
    users = known.unexported(pin.commit, tip) if pin and tip else []
    if users:
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} has commits that are not in patches/",
            why=f"a rebase would leave them on the old pin: {'; '.join(map(str, users))}",
            next_command="k2mps export, then run the same command again",
        )


def _pin(checkout: Checkout, old: Pin, commit: str) -> Pin:
    """The pin for a commit, with k2's version there."""
    result = checkout.git.run("cat-file", "blob", f"{commit}:CMakeLists.txt")
    match = _VERSION.search(result.stdout)
    version = match[1].decode() if match else old.version
    return Pin(old.url, commit, checkout.tree_of(commit), version)
