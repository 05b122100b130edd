"""The errors with which a transaction refuses to change something, and their texts."""

from collections.abc import Sequence

from k2mps.core import errors
from k2mps.core.git import pathspecs
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.stack.advice import move_away
from k2mps.stack.checkout import Checkout, Head

PUT_ASIDE = (
    "to put the change of patches/ aside, git stash -u -- patches upstream.toml, or git revert if"
    " it is committed"
)


def changed_patches(project: Project, paths: list[str], command: str) -> errors.K2mpsError:
    """Returns the error for files of patches/ that someone changed after they were applied."""
    why = (
        f"git or an editor changed {errors.some(paths)}, or another clone of k2-mps uses this"
        f" checkout; {command} would overwrite the change"
    )
    advice = "k2mps apply, which says how to put your commits on top"
    for _, error in patch_folder.examine(project.patches)[1]:
        if isinstance(error, errors.K2mpsError):
            why, advice = f"{why}; {error.message}", error.next_command
            break
    return errors.K2mpsError(
        "patches/ has changed since it was applied here",
        why=why,
        next_command=f"{advice}; or, {PUT_ASIDE}",
    )


def how_to_move(checkout: Checkout, staged: Sequence[str]) -> str:
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


def switch(checkout: Checkout, head: Head, tip: str, stderr: str) -> errors.K2mpsError:
    """Returns the error for a `git switch` that git has refused."""
    paths = set(checkout.changed_paths(head.commit, tip))
    changed = checkout.changed_files("all")
    # A file that was removed only from the index is in both lists.
    edited_or_new = dict.fromkeys([*changed.edited, *changed.untracked])
    in_the_way = [path for path in edited_or_new if path in paths]
    advice = "commit, stash or move away what git names, then the same command again"
    if in_the_way:
        advice += (
            f"; or, if not you but a killed command has left them, {checkout.git_command} stash"
            f" -u -- {pathspecs(in_the_way)}, then the same command again"
        )
    return errors.K2mpsError(
        f"git does not switch {checkout.directory} to the series", why=stderr, next_command=advice
    )
