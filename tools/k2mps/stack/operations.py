"""The operation log, which `k2mps undo` reads.

Each command that changes patches/ or branch k2-mps adds an entry: a commit in the checkout's
repository that no branch has.  The tree of the entry is patches/ and upstream.toml as they were
before the command.  Its parents are the previous entry and the commits of HEAD, branch k2-mps and
the base, so that git keeps them.  Its message says the rest.  `LOG_REF` names the last entry.

A command takes effect when git sets `LOG_REF`, with the other refs in one step.  After a kill, the
next run completes the command if the ref is set, and undoes it if not.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors, interrupts, objects
from k2mps.core.objects import File
from k2mps.core.project import Project, exclusive
from k2mps.core.transaction import FileTransaction, leftover
from k2mps.series import patch_text
from k2mps.stack.checkout import BASE_REF, BRANCH, BRANCH_REF, LOG_REF, Checkout, Head, Move


class Operation(NamedTuple):
    """One entry of the log."""

    id: str  # its commit
    command: str  # the command that was run
    time: str  # when, ISO 8601
    project: str  # the directory of the clone of k2-mps
    head: str  # HEAD before: a branch, or a commit where it was detached
    head_commit: str  # the commit of HEAD before
    head_after: str  # HEAD after, as `head`
    refs: Mapping[str, str | None]  # the refs before
    staged: bool  # whether the command made a commit of edits in the checkout


def record(
    project: Project,
    checkout: Checkout,
    command: str,
    head_after: str | None = None,
    staged: bool = False,
    head: Head | None = None,
    refs: Mapping[str, str | None] | None = None,
) -> str:
    """Writes the entry of the command that runs; no ref names it yet.

    Args:
      command: what the user sees in the log.
      head_after: what HEAD will be, if it changes.
      staged: as in `Operation`.
      head: where the checkout stands, if the caller knows.
      refs: the refs of an entry and `LOG_REF`, if the caller knows.
    """
    head = head or checkout.head()
    refs = dict(refs or checkout.refs((BRANCH_REF, BASE_REF, LOG_REF)))
    previous = refs.pop(LOG_REF)
    facts = {
        "project": str(project.root),
        "head": head.name,
        "head_commit": head.commit,
        "head_after": head_after or head.name,
        "refs": refs,
        "staged": staged,
    }
    parents = dict.fromkeys(commit for commit in (previous, head.commit, *refs.values()) if commit)
    now = f"{patch_text.FROM} {int(time.time())} +0000"
    imported = objects.Import()
    message = f"{command}\n\n{json.dumps(facts)}\n"
    imported.commit(message, now, now, list(parents), project_files(project), anew=True)
    return imported.run(checkout.git)[0]


def project_files(project: Project) -> dict[str, File]:
    """The files that commands change, by path."""
    paths = [project.config_file, *sorted(project.patches.rglob("*"))]
    return {
        path.relative_to(project.root).as_posix(): File(
            path.read_bytes(), bool(path.stat().st_mode & 0o100)
        )
        for path in paths
        if path.is_file() and not path.is_symlink() and path.name != ".DS_Store"
    }


def log(checkout: Checkout) -> list[Operation]:
    """All entries, the last first."""
    import email.utils  # It takes time to import, and `k2mps apply` does without.

    last = checkout.commit_of(LOG_REF)
    found: list[Operation] = []
    for commit in reversed(checkout.commits(last) if last else ()):
        command, _, body = commit.message.partition("\n\n")
        try:
            facts = json.loads(body)
        except json.JSONDecodeError:
            break  # where the log begins, its first parent is no entry
        when = email.utils.parsedate_to_datetime(commit.author.date).isoformat()
        found.append(Operation(id=commit.id, command=command, time=when, **facts))
    return found


def carry_out(
    project: Project,
    checkout: Checkout,
    command: str,
    *,
    changed: Mapping[str, File],
    removed: Sequence[str] = (),
    move: Move = Move({}),
    stage: Callable[[], None] | None = None,
) -> None:
    """Changes files of the project and the checkout, all or nothing, and adds an entry to the log.

    The caller holds `exclusive` of both.

    Args:
      command: what the user sees in the log.
      changed, removed: files of the project, by path.
      move: the destination of the checkout.
      stage: adds the checkout's edits to the index, where they become a commit.  A kill after that
        only leaves them staged.
    """
    operation = record(
        project, checkout, command, head_after=move.head or None, staged=stage is not None
    )
    if stage:
        stage()
    refs = {**move.refs, LOG_REF: operation}
    move = move._replace(refs=refs)
    files = FileTransaction(project.staging, project.root)
    try:
        for path, file in changed.items():
            files.stage(path, file.content, file.executable)
        with interrupts.deferred() as check:
            note = {"checkout": str(checkout.directory), "operation": operation}
            files.begin([*changed, *removed], note)
            try:
                files.swap(changed, removed, check)
                head = checkout.head()
                if not move.commit or (head.name, head.commit) == (move.head, move.commit):
                    checkout.set_refs(move.refs, command)
                else:
                    checkout.move_to(move, command, head)
                files.complete()
            except BaseException:
                # A signal may arrive when all has been done.
                if checkout.commit_of(LOG_REF) == operation:
                    files.complete()
                else:
                    files.roll_back()
                raise
    finally:
        with interrupts.deferred():
            files.close()


def undo(project: Project, checkout: Checkout, which: str | None = None) -> Operation:
    """Restores branch k2-mps and patches/ as they were before an operation.

    Undo loses nothing: it adds an entry to the log, which keeps the commits and the
    edits of patches/ that undo takes away.

    Args:
      which: the beginning of its id; default the last one.
    """
    with at_work(project, checkout):
        entries = log(checkout)
        found = [one for one in entries if one.id.startswith(which)] if which else entries[:1]
        if len(found) != 1:
            raise errors.K2mpsError(
                f"{which} names {len(found) or 'no'} operations"
                if which
                else f"there is nothing to undo in {checkout.directory}",
                next_command="k2mps undo --list",
            )
        (entry,) = found
        _check_undo(project, checkout, entry)
        _restore(project, checkout, entry, entries[0])
    return entry


def _check_undo(project: Project, checkout: Checkout, entry: Operation) -> None:
    if entry.project != str(project.root):
        raise errors.K2mpsError(
            f"that operation was run in {entry.project}",
            why="two clones of k2-mps share the checkout",
            next_command=f"cd {entry.project}, then run the same command again",
        )
    checkout.check_at_rest()
    elsewhere = checkout.other_worktree_on_branch()
    if elsewhere and entry.refs[BRANCH_REF] != checkout.commit_of(BRANCH_REF):
        raise errors.K2mpsError(
            f"branch {BRANCH} is checked out in {elsewhere}",
            why="moving it would leave that worktree behind",
            next_command=f"git -C {elsewhere} checkout --detach, then run the same command again",
        )


def _restore(project: Project, checkout: Checkout, entry: Operation, last: Operation) -> None:
    wanted = checkout.files(entry.id)
    current = project_files(project)
    changed = {path: file for path, file in wanted.items() if current.get(path) != file}
    head = checkout.head().name
    uncommit = entry.staged and entry == last and head == BRANCH_REF
    elsewhere = head not in (BRANCH_REF, last.head_after) and head.startswith("refs/")
    # A user on a branch of their own stays there.  Where the command committed
    # edits, the files stay and have these edits again.
    stay = elsewhere or uncommit
    carry_out(
        project,
        checkout,
        f"undo of {entry.command}",
        changed=changed,
        removed=[path for path in current if path not in wanted],
        move=Move(entry.refs) if stay else Move(entry.refs, entry.head_commit, entry.head),
    )
    if uncommit:
        checkout.git.bytes("reset", "--quiet", work_tree=True)


@contextlib.contextmanager
def at_work(project: Project, checkout: Checkout, rebasing: bool = False) -> Iterator[None]:
    """Locks the project and the checkout, and finishes or undoes what a killed run left.

    Args:
      rebasing: whether the caller is the rebase that may be in progress; any other command is
        refused beside a rebase.
    """
    with exclusive(project.root, str(project.root)):
        recover(project)
        if not rebasing:
            check_no_rebase(project)
        with checkout.exclusive():
            checkout.recover()
            yield


def check_no_rebase(project: Project) -> None:
    """Refuses to change patches/ during a rebase, whose end would overwrite the change."""
    stopped = rebase_under_way(project)
    if stopped:
        raise errors.ConflictError(
            stopped,
            why="a rebase writes patches/ when it ends",
            next_command="k2mps rebase --continue, or --abort",
        )


def rebase_under_way(project: Project) -> str:
    """A sentence about the rebase that waits for the user; empty if none does."""
    if not project.rebase.exists():
        return ""
    return f"a rebase is in progress in {project.rebase}"


def tidy(project: Project) -> None:
    """As `recover`, for callers that do not hold the project's lock."""
    with exclusive(project.root, str(project.root)):
        recover(project)


def recover(project: Project) -> None:
    """Completes or undoes what a killed run began; the caller holds the lock."""
    left = leftover(project.staging)
    if left is None:
        return
    if _took_effect(left.note):
        left.close()
        return
    left.check_unedited()
    with interrupts.deferred():
        left.undo()


def _took_effect(note: dict) -> bool:
    """Whether the killed run had changed the checkout."""
    try:
        checkout = Checkout(Path(note["checkout"]))
    except errors.CheckoutMissingError:
        return False
    checkout.tidy()
    return checkout.commit_of(LOG_REF) == note["operation"]
