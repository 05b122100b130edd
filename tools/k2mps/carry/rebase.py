"""Carrying the series to another upstream commit.

git rebases the patches in a worktree under build/, so that no conflict is in the user's checkout,
and remembers resolutions (rerere).  At a conflict the rebase stops and names the upstream commits
that touched the files; `advance` continues.  After the last patch, the rebase writes patches/ and
the pin together.

`merge` does the same on the same pin, with `git am --3way`, where git has merged patches of two
people without a conflict, and they do not apply to each other.
"""

import dataclasses
import json
import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from k2mps.carry import conflict
from k2mps.core import errors, git, interrupts, replacement
from k2mps.core.git import quoted
from k2mps.core.pins import Pin, is_url
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.series.patch_text import FROM
from k2mps.stack import extraction, states, undo
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout
from k2mps.stack.clone import fetch
from k2mps.stack.commits import AM, commit_date, committer, mail_date, series_tip, unexported

_VERSION = re.compile(rb'^set\(K2_VERSION "?([0-9.]+)"?\)', re.MULTILINE)
_STATE = "k2mps-rebase.json"
# Names for commits of the checkout, not of upstream.
_LOCAL = re.compile(r"HEAD|@|[0-9a-f]{4,40}|refs/.*|origin/.*")
_MARKER = re.compile(rb"^<{7} .*^={7}.*^>{7} ", re.MULTILINE | re.DOTALL)
_REPLAYED = re.compile(r"^(?:Staged|Resolved) '(.*)' using previous resolution", re.MULTILINE)
_TAKEN = "upstream has it already"
_RESOLVED = "its resolution leaves nothing of it"
# Every commit is picked, also one that upstream has, which then is empty and asks.
_REBASE = (
    "rebase --interactive --empty=ask --keep-empty --reapply-cherry-picks --no-rebase-merges"
    " --no-autosquash --no-autostash --no-fork-point"
).split()


@dataclasses.dataclass(frozen=True)
class Rebased:
    """The result of a rebase."""

    pin: Pin  # the new pin
    plan: extraction.Plan  # the written files
    dropped: Sequence[str]  # dropped patches, as "name: reason"
    resolved: Sequence[str]  # conflicts that git resolved as before, as "patch: path"
    differences: Sequence[str]  # the patches that changed, as `git range-diff` lists them


@dataclasses.dataclass
class _State:
    """The state of a rebase, a file in the worktree's git directory."""

    checkout: str  # the directory of the checkout
    command: str  # the command, for the list of states
    tool: str  # the command of git that makes the commits: "rebase" or "am"
    onto: str  # the commit of the new pin
    old_pin: str  # the commit of the old pin
    old_tip: str  # the last commit of the series on the old pin; empty where it does not apply
    names: list[str]  # the patches, in order
    tree: str  # patches/ and upstream.toml at the start
    # dropped, resolved: as in `Rebased`
    dropped: list[str] = dataclasses.field(default_factory=list)
    resolved: list[str] = dataclasses.field(default_factory=list)
    # Why the patch at which git stopped changes nothing; empty after another kind of stop.
    empty: str = ""


def start(
    project: Project, checkout: Checkout, onto: str, drop_upstreamed: bool = False
) -> Rebased:
    """Begins a rebase onto a commit, by a name that upstream or the checkout's git knows.

    After a `ConflictError` the user decides, then calls `advance` or `abort`.  Any other error
    leaves everything as before.
    """
    with states.at_work(project, checkout, rebasing=True):
        _forget_killed(project, checkout)
        states.check_no_rebase(project)
        pin = project.upstream().pin
        _check_exported(project, checkout, pin)
        target = _resolve(checkout, pin, onto)
        tip = series_tip(project, checkout, pin)
        names = [extraction.name_of(one) for one in checkout.commits(f"{pin.commit}..{tip}")]
        tree = states.snapshot(project, checkout)
        where = str(checkout.directory)
        command = f"rebase --onto {onto}"
        state = _State(where, command, "rebase", target, pin.commit, tip, names, tree)
        arguments = [*_REBASE, "--onto", target, pin.commit]
        return _begin(project, checkout, state, tip, arguments, b"", drop_upstreamed)


def merge(project: Project, checkout: Checkout) -> Rebased:
    """Makes the patches, which do not apply to one another, apply; as `start`, on the same pin."""
    with states.at_work(project, checkout, rebasing=True):
        _forget_killed(project, checkout)
        states.check_no_rebase(project)
        pin = project.upstream().pin
        found = patch_folder.load(project.patches)
        date = mail_date(commit_date(checkout, pin.commit))
        mails = b"".join(patch.mail(found.files, date) for patch in found.patches)
        names = [patch.name for patch in found.patches]
        tree = states.snapshot(project, checkout)
        where = str(checkout.directory)
        state = _State(where, "apply", "am", pin.commit, pin.commit, "", names, tree)
        arguments = [*AM[:-1], "--3way"]
        return _begin(project, checkout, state, pin.commit, arguments, mails, False)


def _begin(
    project: Project,
    checkout: Checkout,
    state: _State,
    commit: str,
    arguments: Sequence[str],
    stdin: bytes,
    drop: bool,
) -> Rebased:
    project.build_root.mkdir(exist_ok=True)
    try:
        undo.remember_resolutions(checkout)
        _add_worktree(project, checkout, commit)
        rebase = _Rebase(project, checkout, state)
        rebase.save()
        return rebase.run(arguments, drop, stdin)
    except errors.ConflictError:
        raise
    except BaseException:
        # Nobody has decided anything yet that could be lost.
        with interrupts.deferred():
            checkout.remove_worktree(project.rebase)
        raise


def advance(project: Project, checkout: Checkout, drop_upstreamed: bool = False) -> Rebased:
    """Continues a rebase; a `ConflictError` says why it stops, or cannot go on."""
    with states.at_work(project, checkout, rebasing=True):
        rebase = _Rebase.under_way(project, checkout)
        rebase.check_unchanged()
        return rebase.run(rebase.take_resolution(drop_upstreamed), drop_upstreamed)


def abort(project: Project, checkout: Checkout) -> None:
    """Ends a rebase; everything is as before, and the resolutions are forgotten."""
    with states.at_work(project, checkout, rebasing=True):
        if not project.rebase.exists():
            raise _no_rebase()
        checkout.remove_worktree(project.rebase)
        undo.forget_resolutions(checkout)


class _Rebase:
    def __init__(self, project: Project, checkout: Checkout, state: _State):
        self._project = project
        self._checkout = checkout
        self._state = state
        # The files are the blobs' bytes, whatever the user's line ends are.
        self._git = git.Git(project.rebase, literal=True, reporter=checkout.reporter)
        self._git_dir = _git_dir(project)

    @staticmethod
    def under_way(project: Project, checkout: Checkout) -> "_Rebase":
        """The rebase that has stopped."""
        if not project.rebase.exists():
            raise _no_rebase()
        failure = f"the rebase in {project.rebase} was killed as it began"
        try:
            text = (_git_dir(project) / _STATE).read_text(encoding="utf-8")
            failure = "another version of k2mps began the rebase in progress"
            state = _State(**json.loads(text))
        except (FileNotFoundError, TypeError):
            remedy = "k2mps rebase --abort, then begin again"
            raise errors.ConflictError(failure, next_command=remedy) from None
        if state.checkout != str(checkout.directory):
            raise errors.ConflictError(
                f"the rebase in progress is of the checkout {state.checkout}",
                next_command=f"give --k2 {quoted(state.checkout)} as when it began",
            )
        return _Rebase(project, checkout, state)

    def save(self) -> None:
        """Writes the state; a kill leaves the old or the new one."""
        replacement.rewrite(self._git_dir / _STATE, json.dumps(dataclasses.asdict(self._state)))

    def check_unchanged(self) -> None:
        """Refuses to continue where patches/ has changed since the start."""
        now = states.snapshot(self._project, self._checkout)
        changed = [change.path for change in self._checkout.changes(self._state.tree, now)]
        if changed:
            raise errors.ConflictError(
                f"{errors.some(changed, 5)} changed since the rebase began",
                why="k2mps rebase --continue would overwrite these changes",
                next_command="git stash push --include-untracked patches upstream.toml, then k2mps"
                " rebase --continue, then git stash pop; or k2mps rebase --abort, and begin again",
            )

    @property
    def _amid(self) -> bool:
        """Whether git has stopped at a patch."""
        files = ("rebase-merge/done", "rebase-apply/next")
        return any((self._git_dir / name).exists() for name in files)

    def run(self, arguments: Sequence[str], drop: bool, stdin: bytes = b"") -> Rebased:
        """Has git pick the remaining patches, then writes patches/ and the pin.

        Args:
          arguments: the command of git that does; empty where git has picked them all.
          drop: whether to drop patches that change nothing any more.
        """
        status, told = 0, ""
        while arguments:
            date = commit_date(self._checkout, self._state.onto)
            result = self._git.run(
                *arguments, stdin=stdin, work_tree=True, environment=committer(date)
            )
            status, stdin = result.status, b""
            told = f"{os.fsdecode(result.stdout)}\n{result.stderr}".strip()
            if not self._amid:
                break
            name = self._name()
            replayed = [f"{name}: {path}" for path in _REPLAYED.findall(told)]
            if self._unmerged():
                raise self._conflict(name, told)
            if self._has_staged():
                self._state.resolved += replayed
                self._check_format(name)
                arguments = (self._state.tool, "--continue")
            else:
                replayed = "using previous resolution" in told
                arguments = self._skip(name, _RESOLVED if replayed else _TAKEN, drop, told)
            self.save()
        if status:
            raise errors.K2mpsError(
                f"git {self._state.tool} failed in {self._project.rebase}",
                why=told,
                next_command="k2mps --verbose rebase --continue shows the"
                " command; or k2mps rebase --abort",
            )
        return self._finish()

    def take_resolution(self, drop: bool) -> Sequence[str]:
        """Adds the user's version of the patch at which git stopped, if it can be kept; the command
        that goes on."""
        if not self._amid:
            return ()
        self._check_untracked()
        left = [path for path, stages in self._unmerged().items() if self._is_left(path, stages)]
        if left:
            raise errors.ConflictError(
                f"conflicts are left in {', '.join(left)}",
                next_command=f"edit them in {self._project.rebase}, git add"
                " or git rm them there, then k2mps rebase --continue",
            )
        self._git.bytes("add", "--update", work_tree=True)
        name = self._name()
        if self._has_staged():
            self._check_format(name)
            self._state.empty = ""
            return (self._state.tool, "--continue")
        return self._skip(name, self._state.empty or _RESOLVED, drop)

    def _skip(self, name: str, why: str, drop: bool, told: str = "") -> Sequence[str]:
        """The command that drops a patch of which nothing is left; refuses unless that is meant."""
        self._state.empty = why
        self.save()
        if not drop:
            raise self._empty(name, why, told)
        self._state.dropped.append(f"{name}: {why}")
        self._state.empty = ""
        return (self._state.tool, "--skip")

    def _name(self) -> str:
        """The name of the patch at which git stopped."""
        if self._state.tool == "am":
            number = (self._git_dir / "rebase-apply/next").read_text()
            return self._state.names[int(number) - 1]
        (commit,) = self._checkout.commits("-1", self._picked())
        return extraction.name_of(commit)

    def _picked(self) -> str:
        """The commit at which `git rebase` stopped."""
        stopped = self._git_dir / "rebase-merge/stopped-sha"
        if stopped.exists():
            return stopped.read_text().strip()
        done = (self._git_dir / "rebase-merge/done").read_text()
        return done.strip().split("\n")[-1].split(" ")[1]

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

    def _has_staged(self) -> bool:
        return not self._git.succeeds("diff", "--cached", "--quiet", work_tree=True)

    def _check_untracked(self) -> None:
        """Refuses untracked files, which the patch would lack."""
        where = self._project.rebase
        untracked = Checkout(where, self._checkout.reporter).untracked_files()
        if untracked:
            names = " ".join(shlex.quote(path) for path in untracked)
            raise errors.ConflictError(
                f"{', '.join(untracked[:5])} in {where} is not part of the patch",
                why="git does not track it there, and --continue would leave it behind",
                next_command=f"git -C {quoted(where)} add {names}, or delete it;"
                " then k2mps rebase --continue",
            )

    def _check_format(self, name: str) -> None:
        """Refuses what is staged for a patch, if a patch cannot have that: while it can still be
        corrected."""
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

    def _finish(self) -> Rebased:
        state, checkout = self._state, self._checkout
        onto = state.onto
        tip = self._git.text("rev-parse", "HEAD")
        commits = checkout.commits(f"{onto}..{tip}")
        pin = _pin(checkout, self._project.upstream().pin, onto)
        plan = extraction.plan(self._project, checkout, commits, pin)
        if plan.changed or plan.removed:
            states.carry_out(
                self._project,
                checkout,
                state.command,
                changed=plan.changed,
                removed=plan.removed,
                synced=False,
            )
        checkout.remove_worktree(self._project.rebase)
        return Rebased(pin, plan, state.dropped, state.resolved, self._differences(tip))

    def _differences(self, tip: str) -> list[str]:
        """`git range-diff`'s lines about patches that are not the same."""
        state = self._state
        if not state.old_tip:
            return []
        ranges = (f"{state.old_pin}..{state.old_tip}", f"{state.onto}..{tip}")
        lines = self._checkout.git.text("range-diff", "--no-color", "--no-patch", *ranges)
        return [line for line in lines.splitlines() if not re.match(r"\s*\d+:\s+\w+ = ", line)]

    def _place(self, name: str) -> str:
        number = self._state.names.index(name) + 1 if name in self._state.names else "?"
        return f"patch {number} of {len(self._state.names)}, patches/{name},"

    def _culprits(self, paths: Sequence[str]) -> list[str]:
        """Upstream's commits that touched lines at which git stopped; without paths, any lines of
        the patch's files."""
        state, lines = self._state, []
        for path in paths or self._own_paths():
            file = self._project.rebase / path
            text = file.read_bytes() if file.is_file() else b""
            found = conflict.place(self._checkout, path, text, state.old_pin, state.onto)
            lines += found.lines() if found.commits else []
        return lines

    def _own_paths(self) -> list[str]:
        """The files of the patch at which `git rebase` stopped."""
        picked = self._picked()
        return [one.path for one in self._checkout.changes(f"{picked}^", picked)]

    def _conflict(self, name: str, told: str) -> errors.ConflictError:
        """The error that asks the user to resolve a conflict."""
        paths = list(self._unmerged())
        kinds = re.findall(r"^CONFLICT \(.*$", told, re.MULTILINE)
        return errors.ConflictError(
            f"{self._place(name)} conflicts with {self._state.onto[:12]} in {', '.join(paths)}",
            why="\n".join([*kinds, *self._culprits(paths)]),
            next_command=f"edit the files in {self._project.rebase}, then k2mps rebase --continue;"
            " or k2mps rebase --abort",
        )

    def _empty(self, name: str, why: str, told: str) -> errors.ConflictError:
        """The error that asks the user to decide about a patch of which nothing is left."""
        where = self._project.rebase
        if self._state.tool == "am":
            failed = re.findall(r"^error: (.*)$", told, re.MULTILINE)
            return errors.ConflictError(
                f"{self._place(name)} does not apply",
                why="\n".join(failed) or why,
                next_command=f"make its changes in {where} by hand, then k2mps rebase --continue;"
                " or k2mps rebase --abort",
            )
        return errors.ConflictError(
            f"{self._place(name)} no longer changes anything on {self._state.onto[:12]}",
            why="\n".join([why, *self._culprits(())]),
            next_command="k2mps rebase --continue --drop-upstreamed, to drop it; or edit"
            f" {where} and k2mps rebase --continue; or k2mps rebase --abort",
        )


def _git_dir(project: Project) -> Path:
    link = (project.rebase / ".git").read_text(encoding="utf-8")
    return project.rebase / link.removeprefix("gitdir: ").rstrip("\n")


def _add_worktree(project: Project, checkout: Checkout, commit: str) -> None:
    checkout.git.bytes("worktree", "prune")
    # The files are the blobs' bytes.
    here = git.Git(checkout.directory, literal=True, reporter=checkout.reporter)
    arguments = ("worktree", "add", "--quiet", "--detach", str(project.rebase), commit)
    result = here.run(*arguments, work_tree=True)
    if result.status == 0:
        return
    # git has removed what it wrote; its message is the only sign of a full disk.
    full = "unable to write file" in result.stderr
    raise errors.K2mpsError(
        f"no worktree of k2 could be made in {project.rebase}"
        + (": no space left on device" if full else ""),
        why=result.stderr,
        next_command="free some space, then run the same command again" if full else "",
    )


def _no_rebase() -> errors.K2mpsError:
    return errors.K2mpsError("no rebase is in progress", next_command="k2mps rebase --onto REV")


def _forget_killed(project: Project, checkout: Checkout) -> None:
    """Removes a worktree of a rebase that was killed as it began."""
    try:
        begun = (_git_dir(project) / _STATE).exists()
    except (FileNotFoundError, NotADirectoryError):
        begun = False
    if not begun and project.rebase.exists():
        checkout.remove_worktree(project.rebase)


def _check_exported(project: Project, checkout: Checkout, pin: Pin) -> None:
    tip = checkout.commit_of(BRANCH_REF)
    users = unexported(project, checkout, pin.commit, tip) if tip else []
    if users:
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} has commits that are not in patches/",
            why=f"a rebase would leave them on the old pin: {'; '.join(map(str, users))}",
            next_command="k2mps export, then run the same command again",
        )


def _resolve(checkout: Checkout, pin: Pin, name: str) -> str:
    """The upstream commit of a name, fetched if need be.

    Upstream decides which commit a branch or a tag names: the checkout's branch of that name may
    be old, or the user's.
    """
    if not is_url(name):
        raise errors.K2mpsError(
            f"{name!r} names no commit", next_command="give a commit id, a tag or a branch"
        )
    base, suffix = re.fullmatch(r"(.*?)([~^@:].*)?", name, re.DOTALL).groups()
    local = checkout.commit_of(name)
    if local and (not base or _LOCAL.fullmatch(base)):
        _check_upstreams(checkout, pin, local)
        return local
    try:
        fetch(checkout, f"fetching {base}", pin.url, base)
    except (errors.NotThereError, errors.UnreachableError) as error:
        if isinstance(error, errors.UnreachableError):
            known = f": {local} is what {name} is in {checkout.directory}" if local else ""
            raise errors.UnreachableError(
                f"upstream cannot be asked what {base} is now",
                why=error.why,
                next_command=f"check the network and the url in upstream.toml; or give the full id"
                f" of a commit{known}",
            ) from None
        if not local:
            raise errors.K2mpsError(
                f"neither {checkout.directory} nor {git.redacted(pin.url)} has a commit {name}",
                why=error.why,
                next_command="give a full commit id, a tag or a branch of upstream's",
            ) from None
        _check_upstreams(checkout, pin, local)
        return local
    commit = checkout.commit_of(f"FETCH_HEAD{suffix or ''}")
    if not commit:
        raise errors.K2mpsError(
            f"upstream's {base} has no commit {name}",
            next_command="give a full commit id, a tag or a branch of upstream's",
        )
    return commit


def _check_upstreams(checkout: Checkout, pin: Pin, commit: str) -> None:
    """Refuses a commit that other clones could not fetch as the pin."""
    if checkout.is_ancestor(commit, pin.commit):
        return
    from k2mps.core import repository

    # In the checkout, git has the commit and would not ask upstream.
    with tempfile.TemporaryDirectory(prefix="k2mps-") as folder:
        git.Git(Path(folder)).bytes("init", "--quiet", "--bare")
        try:
            repository.network(
                Path(folder),
                f"asking upstream for {commit[:12]}",
                *"fetch --no-tags --depth=1 --filter=tree:0 --".split(),
                pin.url,
                commit,
                reporter=checkout.reporter,
            )
        except errors.NotThereError:
            raise errors.K2mpsError(
                f"{git.redacted(pin.url)} does not have {commit[:12]}",
                why=f"it is in {checkout.directory} only, and another clone could not fetch it as"
                " the pin",
                next_command="give a commit of upstream's, or correct [upstream] url in"
                " upstream.toml",
            ) from None
        except errors.UnreachableError as error:
            raise errors.UnreachableError(
                f"upstream cannot be asked whether it has {commit[:12]}",
                why=error.why,
                next_command="check the network, then run the same command again",
            ) from None


def _pin(checkout: Checkout, old: Pin, commit: str) -> Pin:
    """The pin for a commit, with k2's version there."""
    result = checkout.git.run("cat-file", "blob", f"{commit}:CMakeLists.txt")
    match = _VERSION.search(result.stdout)
    return Pin(
        old.url, commit, checkout.tree_of(commit), match[1].decode() if match else old.version
    )
