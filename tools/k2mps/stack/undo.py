"""Undoing commands: patches/, the branch and the files are again as before them.

Undo changes back what the commands changed, and nothing else.  Where an editor or git has changed
the same files of patches/ since, or the branch has other commits, it refuses.  It is a command,
too: a second undo reverts it.
"""

import shutil
from pathlib import Path

from k2mps.core import errors, objects
from k2mps.core.git import quoted
from k2mps.core.project import Project
from k2mps.stack import moving, states
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout
from k2mps.stack.states import State, States


def undo(project: Project, checkout: Checkout, which: str | None = None) -> State:
    """Undoes a command and all later ones.

    Args:
      which: the beginning of its id; default the last one.
    Returns:
      The state that the command had left.
    """
    with states.at_work(project, checkout):
        known = States(project, checkout)
        commands = [one for one in known.all if one.command]
        found = [one for one in commands if one.id.startswith(which)] if which else commands[:1]
        if len(found) != 1:
            raise errors.K2mpsError(
                f"{which} names {len(found) or 'no'} operations"
                if which
                else f"there is nothing to undo in {checkout.directory}",
                next_command="k2mps undo --list",
            )
        (undone,) = found
        at = known.all.index(undone)
        if undone.project != known.project:
            other = (checkout.directory / undone.project).resolve()
            raise errors.K2mpsError(
                f"that operation was run in {other}",
                why="two clones of k2-mps share the checkout",
                next_command=f"cd {quoted(other)}, then run the same command again",
            )
        if at + 1 == len(known.all):
            raise errors.K2mpsError(
                f"nothing is known of the time before `k2mps {undone.command}`",
                next_command="k2mps undo --list",
            )
        _restore(project, checkout, known, undone, known.all[at + 1])
    return undone


def _restore(
    project: Project, checkout: Checkout, known: States, undone: State, before: State
) -> None:
    last = next(one for one in known.all if one.command)
    checkout.check_at_rest(edits_too=False)
    wanted = {change.path for change in checkout.changes(before.tree, last.tree)}
    edited = wanted & {change.path for change in checkout.changes(last.tree, known.tree)}
    if edited:
        raise errors.K2mpsError(
            f"{errors.some(sorted(edited))} changed since `k2mps {last.command}`",
            why="git or an editor did that, and undo would take it away",
            next_command="git stash push --include-untracked patches upstream.toml, then the same"
            " command again",
        )
    _check_branch(checkout, last, before)
    old = objects.files(checkout.git, before.tree)
    changed = {path: old[path] for path in wanted if path in old}
    head = checkout.head()
    stay = undone.staged and undone == last and head.commit == last.tip
    # A user on a branch of their own stays there.
    elsewhere = head.branch not in (BRANCH_REF, None, last.head)

    def move() -> None:
        if stay:
            states.commit_edits(checkout, before.tip)
            return
        if not elsewhere and (head.commit, head.branch or "") != (before.tip, before.head):
            _move(checkout, before)
        if before.branch:
            checkout.git.bytes("update-ref", BRANCH_REF, before.branch)
        else:
            checkout.git.bytes("update-ref", "-d", BRANCH_REF)

    if not stay and not elsewhere and head.commit != before.tip:
        checkout.check_at_rest()
    states.carry_out(
        project,
        checkout,
        f"undo of {undone.command}",
        changed=changed,
        removed=sorted(wanted - changed.keys()),
        tip=before.branch,
        move=move,
        synced=before.synced,
    )
    if undone.command.startswith("rebase"):
        forget_resolutions(checkout)


def _move(checkout: Checkout, before: State) -> None:
    branch = before.head.removeprefix("refs/heads/")
    if before.head in ("", BRANCH_REF):
        moving.move(checkout, before.tip, branch)
    else:
        # The user's branch is where it was; only HEAD left it.
        moving.move(checkout, before.tip, "")
        if checkout.commit_of(before.head) == before.tip:
            checkout.git.bytes("symbolic-ref", "HEAD", before.head)


def _check_branch(checkout: Checkout, last: State, before: State) -> None:
    """Refuses where the branch has got other commits since the last command, or must stay."""
    tip = checkout.commit_of(BRANCH_REF)
    elsewhere = checkout.other_worktree_on_branch()
    if elsewhere and tip != before.branch:
        raise errors.K2mpsError(
            f"branch {BRANCH} is checked out in {elsewhere}",
            why="moving it would leave that worktree behind",
            next_command=f"git -C {quoted(elsewhere)} checkout --detach, then run the same command"
            " again",
        )
    if last.head == BRANCH_REF and tip and tip != last.tip:
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} has changed since `k2mps {last.command}`",
            why="undo would take its commits away",
            next_command="k2mps export, to make patches of them, or git -C"
            f" {quoted(checkout.directory)} reset --keep {last.tip[:12]}, to drop them",
        )


def remember_resolutions(checkout: Checkout) -> None:
    """Keeps git's memory of resolved conflicts as it is, for `forget_resolutions`."""
    cache, kept = _caches(checkout)
    shutil.rmtree(kept, ignore_errors=True)
    cache.mkdir(exist_ok=True)
    shutil.copytree(cache, kept)


def forget_resolutions(checkout: Checkout) -> None:
    """Takes back what git has learnt since `remember_resolutions`: no rebase may replay the
    resolutions of one that was aborted or undone."""
    cache, kept = _caches(checkout)
    if kept.exists():
        shutil.rmtree(cache, ignore_errors=True)
        kept.rename(cache)


def _caches(checkout: Checkout) -> tuple[Path, Path]:
    cache = checkout.git.text("rev-parse", "--git-path", "rr-cache")
    path = checkout.directory / cache
    return path, path.with_name("rr-cache-k2mps-before")
