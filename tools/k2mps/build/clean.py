"""Deleting what the tool has made, without losing anybody's work."""

import shutil
from pathlib import Path

from k2mps.core import errors
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.stack.checkout import BRANCH_REF, Checkout
from k2mps.stack.states import States


def clean(project: Project, pin: Pin, everything: bool) -> list[Path]:
    """Deletes the build trees under build/, and with `everything` the clones of k2 as well."""
    found = sorted(project.build_root.iterdir()) if project.build_root.is_dir() else []
    clones = [path for path in found if (path / ".git").exists()]
    if everything:
        for path in clones:
            _check_no_work(project, Checkout(path), pin)
    doomed = [path for path in found if everything or path not in clones]
    for path in doomed:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return doomed


def _check_no_work(project: Project, checkout: Checkout, pin: Pin) -> None:
    """Refuses a clone with work that is nowhere else."""
    held = []
    if edited := checkout.edited_files():
        held.append(f"uncommitted edits in {errors.some(edited)}")
    if untracked := checkout.untracked_files():
        held.append(f"untracked files: {errors.some(untracked)}")
    if checkout.git.text("stash", "list"):
        held.append("stashed changes")
    if checkout.git.text("worktree", "list", "--porcelain").count("worktree ") > 1:
        held.append("linked worktrees")
    names = checkout.git.text("for-each-ref", "--format=%(refname)", "refs/heads").splitlines()
    state = States(project, checkout).known()
    known = ["--not", "--remotes", "--tags", pin.commit, *([state.tip] if state else [])]
    for name in [*names, "HEAD"]:
        # Commits that upstream and patches/ do not have.  Those of a tip that git or the tool has
        # left behind are of value only where patches/ has not got them.
        commits = checkout.commits(name, *known)
        if any(not commit.ours for commit in commits) or (commits and name == BRANCH_REF):
            held.append(f"commits on {name.removeprefix('refs/heads/')}")
    if held:
        raise errors.K2mpsError(
            f"{checkout.directory} holds work: {'; '.join(held)}",
            why="deleting it would lose this work",
            next_command=f"k2mps export, push or move it; or delete {checkout.directory} yourself",
        )
