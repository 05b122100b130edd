"""The errors with which a transaction refuses to change something, and their texts."""

from collections.abc import Sequence

from k2mps.core import errors
from k2mps.core.git import pathspecs
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.stack.advice import move_away
from k2mps.stack.checkout import BRANCH, Checkout, Commit, Head

PUT_ASIDE = (
    "to put the change of patches/ aside, git stash -u -- patches upstream.toml, or git revert if"
    " it is committed"
)


def changed_patches(project: Project, paths: Sequence[str], command: str) -> errors.K2mpsError:
    """Returns the error for files of patches/ that someone changed after they were applied.

    Args:
      paths: the files.
      command: the name of the command that would overwrite them.
    """
    why = (
        f"git or an editor changed {errors.some(paths)}, or another clone of k2-mps uses this"
        f" checkout; {command} would overwrite the change"
    )
    advice = "k2mps apply, which says how to put your commits on top"
    _, problems = patch_folder.examine(project.patches)
    for _, error in problems:
        if isinstance(error, errors.K2mpsError):
            why, advice = f"{why}; {error.message}", error.next_command
            break
    return errors.K2mpsError(
        "patches/ has changed since it was applied here",
        why=why,
        next_command=f"{advice}; or, {PUT_ASIDE}",
    )


def lost_head(checkout: Checkout, head: Head, commit: Commit) -> errors.K2mpsError:
    """Returns the error for a detached HEAD to which no branch or tag leads.

    Args:
      commit: the last commit of the user there.
    """
    return errors.K2mpsError(
        f"HEAD of {checkout.directory} is at commit {commit}",
        why="no branch or tag leads to it",
        next_command=f"{checkout.git_command} branch mine-{head.commit[:12]}, which keeps it;"
        " then the same command again",
    )


def moved_branch(checkout: Checkout, stderr: str) -> errors.K2mpsError:
    """Returns the error for a branch k2-mps that does not have its old id any more.

    Args:
      stderr: git's messages.
    """
    return errors.K2mpsError(
        f"branch {BRANCH} of {checkout.directory} has moved meanwhile",
        why=stderr,
        next_command="run the same command again",
    )


def unwritten(checkout: Checkout, paths: Sequence[str], stderr: str) -> errors.K2mpsError:
    """Returns the error for files that git has not written when it checked out a commit.

    Args:
      stderr: git's messages; empty if they are unknown.
    """
    return errors.K2mpsError(
        f"git could not write {errors.some(paths)} in {checkout.directory}",
        why=stderr or "the disk was full, or a folder not writable; or you have edited that",
        next_command="free some space, and make the folders writable; then"
        f" {checkout.git_command} stash -- {pathspecs(paths)}, which writes the files and keeps"
        " their text in the stash; then the same command again",
    )


def in_the_way(
    checkout: Checkout, paths: Sequence[str], staged: Sequence[str]
) -> errors.K2mpsError:
    """Returns the error for files that git would overwrite or delete.

    Args:
      paths: the files.
      staged: those of the files that are new and staged; the others are ignored.
    """
    return errors.K2mpsError(
        f"files are in the way in {checkout.directory}: {errors.some(paths)}",
        why="git would overwrite or delete them, because they are ignored, or new and staged; other"
        " files or folders have their paths",
        next_command=f"{_how_to_move(checkout, staged)}; then the same command again",
    )


def _how_to_move(checkout: Checkout, staged: Sequence[str]) -> str:
    """Returns what the user does with the files that are in the way.

    Args:
      staged: those of the files that are new and staged; the others are ignored.
    """
    if moves := move_away(checkout, staged):
        return moves
    if set(staged) & set(checkout.changed_files().staged_only):
        return "k2mps status, which says how to keep one of two versions"
    if not staged:
        return "move them away"
    unstage = f"{checkout.git_command} rm --cached -- {pathspecs(staged)}"
    return f"{unstage}, which keeps the files; move them away"


def refused_switch(checkout: Checkout, head: Head, tip: str, stderr: str) -> errors.K2mpsError:
    """Returns the error for a `git switch` that git has refused.

    Args:
      head: the commit that is checked out.
      tip: the commit that git was to check out.
      stderr: git's messages.
    """
    paths = set(checkout.changed_paths(head.commit, tip))
    changed = checkout.changed_files("all")
    # A file that was removed only from the index is in both lists.
    edited_or_new = dict.fromkeys([*changed.edited, *changed.untracked])
    changed_in_both = [path for path in edited_or_new if path in paths]
    advice = "commit, stash or move away what git names, then the same command again"
    if changed_in_both:
        advice += (
            f"; or, if not you but a killed command has left them, {checkout.git_command} stash"
            f" -u -- {pathspecs(changed_in_both)}, then the same command again"
        )
    return errors.K2mpsError(
        f"git does not switch {checkout.directory} to the series", why=stderr, next_command=advice
    )
