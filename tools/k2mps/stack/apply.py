"""Applies the series.  The commits get the same ids on every machine.

First the tool makes a commit of each patch, which changes no file and no ref (see commits.py).
Then git switches the checkout to the last commit.
"""

import os
import shlex
from collections.abc import Sequence

from k2mps.core import errors, interrupts
from k2mps.core.project import Project
from k2mps.stack import applied
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Commit
from k2mps.stack.work import Work, at_work, where


def apply(project: Project, checkout: Checkout) -> tuple[str, list[str] | None]:
    """Applies the series to a checkout, which does not change if this function raises an error.

    Returns:
      The commit that is checked out; and the paths that were written or removed, or None if the
      series was applied already.
    Raises:
      DoesNotApplyError: the series does not apply.
      BusyError: another run of the tool uses the checkout.
    """
    with at_work(project, checkout) as work:
        tip = work.tip()
        if _is_there(work, tip):
            work.record(tip)
            return work.head.commit, None  # The user's commits on top stay checked out.
        left = _left_by_a_kill(work, tip)
        _check_movable(work, tip, left)
        paths = checkout.changed_paths(work.head.commit, tip)
        _switch(checkout, tip, left)
        work.record(tip)
        return tip, paths


def _is_there(work: Work, tip: str) -> bool:
    """Whether branch k2-mps is checked out and has the series up to `tip`, perhaps with the user's
    commits on top."""
    head, old, is_ancestor = work.head, work.applied, work.checkout.is_ancestor
    if head.branch != BRANCH_REF or not is_ancestor(tip, head.commit):
        return False
    if head.commit == tip or not old:
        return head.commit == tip or bool(work.users(tip))
    # The branch may also contain `old.tip`, the last commit of the series that was applied before.
    # Then the commits on top of `tip` may belong to patches that were deleted from patches/.
    return old.tip == tip or not is_ancestor(old.tip, head.commit)


def _check_movable(work: Work, tip: str, left: Sequence[str]) -> None:
    """Refuses a checkout with edits or commits of the user that `git switch` would hide.

    Args:
      left: files that a killed run has left; these do not count as edits.
    """
    checkout, head, pin, here = work.checkout, work.head, work.pin, where(work.checkout)
    checkout.check_at_rest([one for one in checkout.changed_files()[0] if one not in left])
    users = work.users(tip)
    on_branch = head.branch == BRANCH_REF
    if on_branch and users:
        raise _has_commits(work, users, tip)
    mine = [] if on_branch else work.users(tip, head.commit)
    if mine and checkout.is_ancestor(pin.commit, head.commit):
        raise _has_commits(work, mine, tip)
    # If the tool made the clone, the tool may move HEAD away from a commit to which a branch or tag
    # leads.  In a checkout that the user made, only the user moves HEAD away.
    holders = ("for-each-ref", "--count=1", "--contains", "HEAD")
    named = checkout.own and checkout.git.text(*holders)
    if mine and not named:
        raise errors.K2mpsError(
            f"{checkout.directory} is at commit {head.commit[:12]}, the series is for"
            f" {pin.commit[:12]} (k2 {pin.version})",
            next_command=f"{here} checkout {pin.commit}",
        )
    worktree = checkout.git.text("for-each-ref", "--format=%(worktreepath)", BRANCH_REF)
    if not on_branch and os.path.exists(worktree):
        raise errors.K2mpsError(
            f"branch {BRANCH} is checked out in {worktree}",
            why="two worktrees cannot share a branch",
            next_command="use that worktree, or another clone of k2",
        )
    if users:
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} has commits of yours",
            why=f"patches/ does not have {errors.some([*map(str, users)])}",
            next_command=f"{here} branch -m {BRANCH} my-{BRANCH}; or check the branch out and"
            " k2mps export",
        )


def _has_commits(work: Work, users: Sequence[Commit], tip: str) -> errors.K2mpsError:
    here, old = where(work.checkout), work.applied
    if work.head.branch != BRANCH_REF:
        advice = f"{here} checkout {work.pin.commit} leaves them where they are"
    elif work.changed and work.checkout.is_ancestor(old.tip, work.head.tip):
        # work.tip() has made the commits of the changed patches/, so git can rebase onto `tip`.
        advice = f"{here} rebase --onto {tip} {old.tip[:12]} {BRANCH}, then k2mps export"
    else:
        leave = f"{here} branch -m {BRANCH} my-{BRANCH}"
        if work.changed:
            # k2mps export would refuse to overwrite the changed files of patches/.
            advice = f"{leave}, which leaves them there; then {here} checkout {work.pin.commit},"
            advice += " and k2mps apply"
        else:
            advice = f"k2mps export makes patches of them; {leave} leaves them where they are"
    return errors.K2mpsError(
        f"{work.checkout.directory} has commits of yours on top of k2",
        why=f"patches/ does not have {errors.some([*map(str, users)])}",
        next_command=advice,
    )


def _left_by_a_kill(work: Work, tip: str) -> list[str]:
    """Returns the files that a killed `git switch` to the commit `tip` has not finished writing.

    git writes a file from its beginning.  So such a file is missing, or its content is a prefix of
    the commit's file.  Neither can be an edit of the user.
    """
    checkout, left = work.checkout, []
    paths = checkout.changed_paths(work.head.commit, tip)
    edited = set(checkout.changed_files()[0])
    before = checkout.objects.entries(work.head.commit, paths) if paths else {}
    new = checkout.objects.files(tip, paths) if paths else {}
    for path in paths:
        file = checkout.directory / path
        there = file.is_file() and not file.is_symlink()
        if path in before and path not in edited or not there and path not in edited:
            continue
        data = file.read_bytes() if there else b""
        if path not in new:
            left += [] if there else [path]
        elif os.path.lexists(file) != there:
            continue
        elif any(map(new[path].content.startswith, (data, data.replace(b"\r\n", b"\n")))):
            left.append(path)
    return left


def _switch(checkout: Checkout, commit: str, left: Sequence[str]) -> None:
    """Switches the checkout and branch k2-mps to a commit; untracked files stay.

    Args:
      left: the files that a killed run has left, see `_left_by_a_kill`; they are overwritten.
    """
    tracked = checkout.objects.entries(commit, left) if left else {}
    command = ("switch", "--quiet", "--no-guess", "--no-overwrite-ignore", "-C", BRANCH, commit)
    with interrupts.deferred():
        applied.check_movable(checkout, commit)
        if tracked:
            paths = "".join(f"{path}\0" for path in tracked)
            how = ("--pathspec-from-file=-", "--pathspec-file-nul")
            checkout.git.bytes("checkout", "--quiet", commit, *how, stdin=os.fsencode(paths))
        result = checkout.git.run(*command)
    if result.status:
        raise checkout.git.failure(command, result)
    missed = checkout.changed_files()[0] if result.stderr else []
    if missed:  # git moves the branch even if it could not write some files.
        raise errors.K2mpsError(
            f"git could not write {errors.some(missed)} in {checkout.directory}",
            why=result.stderr,
            next_command=f"make the folders writable, then {where(checkout)} restore --"
            f" {shlex.join(missed)}",
        )
