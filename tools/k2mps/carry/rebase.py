"""Carrying the series to another upstream commit.

`git cherry-pick` picks each patch onto the new commit, in a worktree under build/, so that no
conflict is in the user's checkout.  At a conflict the rebase stops and explains it; `advance`
continues.  After the last patch, the rebase writes patches/ and the pin together.
"""

import dataclasses
import json
import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from k2mps.carry import resolutions
from k2mps.carry.conflict import Explainer
from k2mps.core import errors, git, interrupts, transaction
from k2mps.core.objects import File
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.stack import extraction, operations
from k2mps.stack.apply import locked
from k2mps.stack.checkout import BRANCH_REF, Checkout, Commit
from k2mps.stack.commits import commit_series

_VERSION = re.compile(rb'^set\(K2_VERSION "?([0-9.]+)"?\)', re.MULTILINE)
_STATE = "k2mps-rebase.json"
# The worktree's git directory keeps resolutions until the rebase succeeds: no rebase may replay
# those of an aborted one.
_RESOLUTIONS = "k2mps-resolutions"
# Names for commits of the checkout, not of upstream.
_LOCAL = re.compile(r"HEAD|@|[0-9a-f]{4,40}|refs/.*|origin/.*")

# With the base between the sides, a conflict shows what upstream changed.
_PICK = (
    "-c merge.conflictStyle=diff3 -c merge.renames=true -c merge.directoryRenames=false"
    " -c rerere.enabled=false cherry-pick --no-commit"
).split()


@dataclasses.dataclass(frozen=True)
class Rebased:
    """The result of a rebase."""

    pin: Pin  # the new pin
    plan: extraction.Plan  # the written files, resolutions/ included
    dropped: Sequence[tuple[str, str]]  # names of dropped patches, each with the reason
    resolved: Sequence[str]  # conflicts that resolutions/ resolved, as "patch: path"


@dataclasses.dataclass
class _State:
    """The state of a rebase, a file in the worktree's git directory."""

    checkout: str  # the directory of the checkout
    command: str  # the command, for the log
    onto: str  # the commit of the new pin
    old_pin: str  # the commit of the old pin
    head: str  # the commit of the last patch that was picked, or `onto`
    todo: list[str]  # commits of the series that are still to be picked
    count: int  # the number of patches in the series
    files: dict[str, str]  # the hashes of patches/ and upstream.toml at the start, by path
    # dropped, resolved: as in `Rebased`
    dropped: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    resolved: list[str] = dataclasses.field(default_factory=list)
    # Files with conflicts, and their text as git left it; empty where it has no markers.
    unresolved: dict[str, str] = dataclasses.field(default_factory=dict)
    # Why the patch at which the rebase stopped changes nothing; empty after another kind of stop.
    empty: str = ""


def start(
    project: Project, checkout: Checkout, onto: str, drop_upstreamed: bool = False
) -> Rebased:
    """Begins a rebase onto a commit, by a name that upstream or the checkout's git knows.

    After a `ConflictError` the user decides, then calls `advance` or `abort`.  Any other error
    leaves everything as before.
    """
    with operations.at_work(project, checkout, rebasing=True):
        _forget_killed(project, checkout)
        operations.check_no_rebase(project)
        pinned = project.upstream()
        found = locked(project, pinned)
        _check_exported(checkout, pinned.pin)
        target = _resolve(checkout, pinned.pin, onto)
        tip = commit_series(checkout, pinned.pin, found).tip
        todo = checkout.commits(f"{pinned.pin.commit}..{tip}")
        state = _State(
            str(checkout.directory),
            f"rebase --onto {onto}",
            target,
            pinned.pin.commit,
            target,
            [commit.id for commit in todo],
            len(todo),
            _hashes(project),
        )
        project.build_root.mkdir(exist_ok=True)
        try:
            _add_worktree(project, checkout, target)
            rebase = _Rebase(project, checkout, state)
            rebase.save()
            return rebase.run(drop_upstreamed)
        except errors.ConflictError:
            raise
        except BaseException:
            # Nobody has decided anything yet that could be lost.
            with interrupts.deferred():
                checkout.remove_worktree(project.rebase)
            raise


def advance(project: Project, checkout: Checkout, drop_upstreamed: bool = False) -> Rebased:
    """Continues a rebase; a `ConflictError` says why it stops, or cannot go on."""
    with operations.at_work(project, checkout, rebasing=True):
        rebase = _Rebase.under_way(project, checkout)
        rebase.check_unchanged()
        rebase.take_resolution(drop_upstreamed)
        return rebase.run(drop_upstreamed)


def abort(project: Project, checkout: Checkout) -> None:
    """Ends a rebase; everything is as before, and the resolutions are forgotten."""
    with operations.at_work(project, checkout, rebasing=True):
        if not project.rebase.exists():
            raise _no_rebase()
        checkout.remove_worktree(project.rebase)


class _Rebase:
    def __init__(self, project: Project, checkout: Checkout, state: _State):
        self._project = project
        self._checkout = checkout
        self._state = state
        # The files are the blobs' bytes, whatever the user's line ends are.
        self._git = git.Git(project.rebase, literal=True, reporter=checkout.reporter)
        self._git_dir = _git_dir(project)
        # Whether resolutions/ resolved conflicts of the present patch.
        self._replayed = False

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
                next_command=f"give --k2 {state.checkout} as when it began",
            )
        return _Rebase(project, checkout, state)

    def save(self) -> None:
        """Writes the state; a kill leaves the old or the new one."""
        transaction.rewrite(self._git_dir / _STATE, json.dumps(dataclasses.asdict(self._state)))

    def check_unchanged(self) -> None:
        """Refuses to continue where patches/ has changed since the start."""
        differences = self._state.files.items() ^ _hashes(self._project).items()
        changed = sorted({path for path, _ in differences})
        if changed:
            raise errors.ConflictError(
                f"{', '.join(changed[:5])} changed since the rebase began",
                why="k2mps rebase --continue would overwrite these changes",
                next_command="git stash push --include-untracked patches upstream.toml, then k2mps"
                " rebase --continue, then git stash pop; or k2mps rebase --abort, and begin again",
            )

    def run(self, drop_upstreamed: bool) -> Rebased:
        """Picks the remaining patches, then writes patches/ and the pin."""
        while self._state.todo:
            (commit,) = self._checkout.commits("-1", self._state.todo[0])
            self._pick(commit)
            self._commit(commit, drop_upstreamed)
        return self._finish()

    def _pick(self, commit: Commit) -> None:
        """Merges one commit into the worktree."""
        self._git.bytes("reset", "--quiet", "--hard", self._state.head, work_tree=True)
        changes = self._checkout.changes(commit.parents[0], commit.id)
        added = (change.path for change in changes if change.kind == "A")
        left = [path for path in added if os.path.lexists(self._project.rebase / path)]
        if left:
            # A killed run may have left this patch's new files, untracked.
            self._git.bytes("clean", "--quiet", "--force", "-x", "--", *left, work_tree=True)
        result = self._git.run(*_PICK, commit.id, work_tree=True)
        unmerged = self._unmerged()
        if result.status != 0 and not unmerged:
            raise errors.K2mpsError(
                f"git cherry-pick failed in {self._project.rebase}",
                why=result.stderr,
                next_command="k2mps --verbose rebase --continue shows the"
                " command; or k2mps rebase --abort",
            )
        name = extraction.name_of(commit)
        self._state.unresolved = {}
        self._replayed = bool(unmerged)
        for path in unmerged:
            text = self._conflicting(path)
            known = self._project.resolutions / name
            resolved = resolutions.resolve(known, text) if text else None
            if resolved is None:
                self._state.unresolved[path] = os.fsdecode(text)
            else:
                (self._project.rebase / path).write_bytes(resolved)
                self._git.bytes("add", "--", path, work_tree=True)
        if self._state.unresolved:
            self.save()
            raise self._stopped(commit)
        self._state.resolved += [f"{name}: {path}" for path in unmerged]

    def _unmerged(self) -> list[str]:
        output = self._git.bytes("diff", "--name-only", "--diff-filter=U", "-z", work_tree=True)
        return list(dict.fromkeys(git.split_z(output)))

    def _conflicting(self, path: str) -> bytes:
        """The text of a file with conflict markers; empty where it has none."""
        file = self._project.rebase / path
        text = file.read_bytes() if file.is_file() else b""
        return text if resolutions.has_markers(text) else b""

    def take_resolution(self, drop_upstreamed: bool) -> None:
        """Commits the user's version of the patch at which the rebase stopped, and remembers the
        resolutions."""
        if not self._state.unresolved and not self._state.empty:
            return
        self._check_untracked()
        unmerged = self._unmerged()
        left = [
            path
            for path, text in self._state.unresolved.items()
            # Only the user knows whether a file without markers stays.
            if self._conflicting(path) or (path in unmerged and not text)
        ]
        if left:
            raise errors.ConflictError(
                f"conflicts are left in {', '.join(left)}",
                next_command=f"edit them in {self._project.rebase}, git add"
                " or git rm them there, then k2mps rebase --continue",
            )
        (commit,) = self._checkout.commits("-1", self._state.todo[0])
        learnt = self._git_dir / _RESOLUTIONS / extraction.name_of(commit)
        for path, text in self._state.unresolved.items():
            file = self._project.rebase / path
            if text and file.is_file():
                resolutions.remember(learnt, os.fsencode(text), file.read_bytes())
        self._git.bytes("add", "--update", work_tree=True)
        self._commit(commit, drop_upstreamed)

    def _check_untracked(self) -> None:
        """Refuses untracked files, which the patch would lack."""
        where = self._project.rebase
        untracked = Checkout(where, self._checkout.reporter).untracked_files()
        if untracked:
            names = " ".join(shlex.quote(path) for path in untracked)
            raise errors.ConflictError(
                f"{', '.join(untracked[:5])} in {where} is not part of the patch",
                why="git does not track it there, and --continue would delete it",
                next_command=f"git -C {shlex.quote(str(where))} add {names}, or delete it;"
                " then k2mps rebase --continue",
            )

    def _commit(self, commit: Commit, drop_upstreamed: bool) -> None:
        """Commits the worktree's index as the next patch."""
        state = self._state
        new = self._git.text("write-tree")
        if new != self._checkout.tree_of(state.head):
            # patches/ keeps a date only where the patch had one.
            author = commit.author.variables()
            state.head = self._checkout.commit_tree(new, state.head, commit.message, author)
        else:
            resolved = state.unresolved or self._replayed
            why = "its resolution leaves nothing of it" if resolved else "upstream has it already"
            state.empty = state.empty or why
            if not drop_upstreamed:
                state.unresolved = {}
                self.save()
                raise self._stopped(commit)
            state.dropped.append((extraction.name_of(commit), state.empty))
        del state.todo[0]
        state.unresolved = {}
        state.empty = ""
        self.save()

    def _finish(self) -> Rebased:
        onto = self._state.onto
        commits = self._checkout.commits(f"{onto}..{self._state.head}")
        pin = _pin(self._checkout, self._project.upstream().pin, onto)
        plan = extraction.plan(self._project, self._checkout, commits, pin)
        plan = plan._replace(changed={**plan.changed, **self._learnt()})
        if plan.changed or plan.removed:
            operations.carry_out(
                self._project,
                self._checkout,
                self._state.command,
                changed=plan.changed,
                removed=plan.removed,
            )
        self._checkout.remove_worktree(self._project.rebase)
        return Rebased(pin, plan, self._state.dropped, self._state.resolved)

    def _learnt(self) -> dict[str, File]:
        """The resolutions of this rebase, by their path in the project."""
        kept = self._git_dir / _RESOLUTIONS
        into = self._project.resolutions.relative_to(self._project.root)
        found = sorted(kept.glob("*/*"))
        return {str(into / path.relative_to(kept)): File(path.read_bytes()) for path in found}

    def _stopped(self, commit: Commit) -> errors.ConflictError:
        """The error that asks the user to decide about a patch."""
        state, where = self._state, self._project.rebase
        number = state.count - len(state.todo) + 1
        patch = f"patch {number} of {state.count}, patches/{extraction.name_of(commit)},"
        explainer = Explainer(self._checkout, state.old_pin, state.onto)
        if state.empty:
            places = explainer.explain(commit)
            culprits = dict.fromkeys(str(one) for place in places for one in place.commits)
            return errors.ConflictError(
                f"{patch} no longer changes anything on {state.onto[:12]}",
                why="\n".join([state.empty, *culprits]),
                next_command="k2mps rebase --continue --drop-upstreamed, to drop it; or edit"
                f" {where} and k2mps rebase --continue; or k2mps rebase --abort",
            )
        places = explainer.explain(commit, list(state.unresolved))
        return errors.ConflictError(
            f"{patch} conflicts with {state.onto[:12]} in {', '.join(state.unresolved)}",
            why="\n".join(line for place in places for line in place.lines()),
            next_command=f"edit the files in {where}, then k2mps rebase --continue;"
            " or k2mps rebase --abort",
        )


def _hashes(project: Project) -> dict[str, str]:
    """The hashes of the files that a rebase writes, by path."""
    return {path: file.digest for path, file in operations.project_files(project).items()}


def _git_dir(project: Project) -> Path:
    link = (project.rebase / ".git").read_text(encoding="utf-8")
    return project.rebase / link.removeprefix("gitdir: ").rstrip("\n")


def _add_worktree(project: Project, checkout: Checkout, commit: str) -> None:
    result = checkout.git.run("worktree", "add", "--quiet", "--detach", str(project.rebase), commit)
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


def _no_rebase() -> errors.ConflictError:
    return errors.ConflictError("no rebase is in progress", next_command="k2mps rebase --onto REV")


def _forget_killed(project: Project, checkout: Checkout) -> None:
    """Removes a worktree of a rebase that was killed as it began."""
    try:
        begun = (_git_dir(project) / _STATE).exists()
    except (FileNotFoundError, NotADirectoryError):
        begun = False
    if not begun and project.rebase.exists():
        checkout.remove_worktree(project.rebase)


def _check_exported(checkout: Checkout, pin: Pin) -> None:
    tip = checkout.commit_of(BRANCH_REF)
    users = checkout.unexported(pin.commit, tip) if tip else []
    if users:
        raise errors.K2mpsError(
            f"branch k2-mps of {checkout.directory} has commits that are not in patches/",
            why=f"a rebase would leave them on the old pin: {'; '.join(map(str, users))}",
            next_command="k2mps export, then run the same command again",
        )


def _resolve(checkout: Checkout, pin: Pin, name: str) -> str:
    """The upstream commit of a name, fetched if need be.

    Upstream decides which commit a branch or a tag names: the checkout's branch of that name may
    be old, or the user's.
    """
    base, suffix = re.fullmatch(r"(.*?)([~^@:].*)?", name, re.DOTALL).groups()
    local = checkout.commit_of(name)
    if local and (not base or _LOCAL.fullmatch(base)):
        _check_upstreams(checkout, pin, local)
        return local
    try:
        checkout.git.network(f"fetching {base}", "fetch", "--no-tags", pin.url, base)
    except (errors.NotThereError, errors.UnreachableError) as error:
        if local and isinstance(error, errors.UnreachableError):
            raise errors.UnreachableError(
                f"upstream cannot be asked what {base} is now",
                why=error.why,
                next_command=f"check the network; or give the full id of a commit: {local} is what"
                f" {name} is in {checkout.directory}",
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
    # In the checkout, git has the commit and would not ask upstream.
    with tempfile.TemporaryDirectory(prefix="k2mps-") as folder:
        empty = git.Git(Path(folder), reporter=checkout.reporter)
        empty.bytes("init", "--quiet", "--bare")
        try:
            empty.network(
                f"asking upstream for {commit[:12]}",
                *"fetch --no-tags --depth=1 --filter=tree:0".split(),
                pin.url,
                commit,
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
