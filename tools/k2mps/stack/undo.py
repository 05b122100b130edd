"""Undoing commands: patches/, the branch and the files are again as before them.

Undo changes back what the commands changed, and nothing else.  Where an editor or git has changed
the same files of patches/ since, or the branch has other commits, it refuses.  It is a command,
too: a second undo reverts it.
"""

import shutil
from pathlib import Path

from k2mps.core import errors
from k2mps.core.git import quoted
from k2mps.core.project import Project
from k2mps.stack import states
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout
from k2mps.stack.moving import Move
from k2mps.stack.states import State, States


def undo(project: Project, checkout: Checkout, which: str | None = None) -> State:
    """Undoes a command and all later ones.

    Args:
      which: the beginning of its id; default the last one.
    Returns:
      The state that the command had left.
    """
    with states.at_work(project, checkout) as known:
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
        _restore(known, undone, known.all[known.all.index(undone) + 1])
    return undone


def _restore(known: States, undone: State, before: State) -> None:
    checkout, head = known.checkout, known.head
    last = next(one for one in known.all if one.command)
    checkout.check_at_rest(edits_too=False)
    wanted = set(checkout.changed_paths(before.tree, last.tree))
    edited = wanted.intersection(checkout.changed_paths(last.tree, known.tree))
    if edited:
        raise errors.K2mpsError(
            f"{errors.some(sorted(edited))} changed since `k2mps {last.command}`",
            why="git or an editor did that, and undo would take it away",
            next_command="git stash push --include-untracked patches upstream.toml, then the same"
            " command again",
        )
    if last.head == BRANCH_REF and head.tip and head.tip != last.tip:
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} has changed since `k2mps {last.command}`",
            why="undo would take its commits away",
            next_command="k2mps export, to make patches of them, or git -C"
            f" {quoted(checkout.directory)} reset --keep {last.tip[:12]}, to drop them",
        )
    here, there = (head.commit, head.branch), (before.tip, before.head)
    made_of_edits = undone.command.startswith(("fold ", "new "))
    if made_of_edits and undone == last and head.commit == last.tip:
        move = Move(*there, before.branch, "edits")
    elif here == there or head.branch not in (BRANCH_REF, "", last.head):
        # A user on a branch of their own stays there.
        move = Move(*here, before.branch, "")
    else:
        if head.commit != before.tip:
            checkout.check_at_rest()
        move = Move(*there, before.branch, "files")
    changed = checkout.files(before.tree, sorted(wanted)) if wanted else {}
    known.carry_out(
        f"undo of {undone.command}",
        changed=changed,
        removed=sorted(wanted - changed.keys()),
        move=move,
        synced=before.synced,
    )
    if undone.command.startswith("rebase"):
        forget_resolutions(checkout)


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
