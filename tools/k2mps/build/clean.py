"""Deleting what the tool has made, and nothing that anybody has written."""

from __future__ import annotations

import shutil
from pathlib import Path

from k2mps.core import errors
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.stack.checkout import Checkout


def build_trees(project: Project) -> list[Path]:
    """Everything under build/ that a build or a test run makes anew."""
    if not project.build_root.is_dir():
        return []
    return [path for path in sorted(project.build_root.iterdir()) if not (path / ".git").exists()]


def checkouts(project: Project) -> list[Path]:
    """The clones of k2 under build/."""
    if not project.build_root.is_dir():
        return []
    return [path for path in sorted(project.build_root.iterdir()) if (path / ".git").exists()]


def clean(project: Project, pin: Pin, everything: bool) -> list[Path]:
    """Deletes the build trees, and with `everything` the clones as well.

    Returns:
      What was deleted.
    Raises:
      RefusedError: a clone holds work; then nothing is deleted.
    """
    doomed = build_trees(project)
    if everything:
        for path in checkouts(project):
            check_no_work(Checkout(path), pin)
            doomed.append(path)
    for path in doomed:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return doomed


def check_no_work(checkout: Checkout, pin: Pin) -> None:
    """Refuses a clone with anything in it that is nowhere else.

    Raises:
      RefusedError: names what.
    """
    held = []
    edited = checkout.edited_files()
    if edited:
        held.append(f"uncommitted edits in {', '.join(edited[:3])}")
    untracked = checkout.untracked_files()
    if untracked:
        held.append(f"untracked files: {', '.join(untracked[:3])}")
    if checkout.git.text("stash", "list"):
        held.append("stashed changes")
    if checkout.git.text("worktree", "list", "--porcelain").count("worktree ") > 1:
        held.append("linked worktrees")
    for branch in _branches_with_work(checkout, pin):
        held.append(f"commits on {branch}")
    if held:
        raise errors.RefusedError(
            f"{checkout.directory} holds work: {'; '.join(held)}",
            why="deleting it would lose this work",
            next_command=f"k2mps export, push or move it; or delete {checkout.directory} yourself",
        )


def _branches_with_work(checkout: Checkout, pin: Pin) -> list[str]:
    """Branches, and HEAD, with commits that upstream, the tool and patches/
    do not have."""
    names = checkout.git.text("for-each-ref", "--format=%(refname)", "refs/heads").split("\n")
    base = checkout.base()
    known = ["--not", "--remotes", "--tags", pin.commit]
    if base:
        known.append(base)
    found = []
    for name in [*filter(None, names), "HEAD"]:
        commits = checkout.commits(name, *known)
        if any(not commit.ours for commit in commits):
            found.append(name.removeprefix("refs/heads/"))
    return found
