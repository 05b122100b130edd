"""Commands that the tool tells the user to run in the checkout, and the words around them."""

import os
from collections.abc import Sequence

from k2mps.core import errors, git
from k2mps.stack.checkout import BRANCH, Checkout

# A `git rebase` that moves no other branch and runs no hook: a hook may change each message.
# git's autostash would lose a staged version that the file does not have, and what stands at the
# path of a tracked file.  git's other way to rebase, by `git am`, may change white space.  A
# merge that is not git's own may drop edits or carriage returns.  An encoding other than that of
# patches/ may lack letters of a message.  Without a key, a signature would stop the rebase.
REBASE = (
    *git.settings(
        {
            "core.hooksPath": os.devnull,
            "i18n.commitEncoding": "UTF-8",
            "merge.default": "",
            "merge.renormalize": "false",
            "rebase.updateRefs": "false",
        }
    ),
    "rebase",
    "--merge",
    "--strategy=ort",
    "--no-autostash",
    "--no-gpg-sign",
)


def stash_and(checkout: Checkout, commands: str) -> str:
    """Returns the advice to put edits and new files aside, and then to run other commands."""
    if moves := move_away(checkout, checkout.changed_files().edited):
        return f"{moves}; then k2mps status"
    return (
        f"{checkout.git_command} stash -u, which keeps edits and new files in the stash; then"
        f" {commands}"
    )


def move_away(checkout: Checkout, edited: Sequence[str]) -> str:
    """Returns the advice to move what git would delete; empty if there is nothing."""
    exchanged = checkout.exchanged(edited)
    if not exchanged:
        return ""
    return f"move what is at {errors.some(exchanged)} out of {checkout.directory}"


def choice_of_version(checkout: Checkout, paths: Sequence[str]) -> str:
    """Returns the commands that make the index and files agree, see `Differences.staged_only`."""
    if moves := move_away(checkout, paths):
        return moves
    command, names = checkout.git_command, git.pathspecs(paths)
    return (
        f"{command} diff -- {names} shows the difference; {command} add -- {names} keeps the"
        f" files and discards the staged versions, {command} checkout -- {names} keeps the"
        " staged versions and discards the files"
    )


def rebase_command(checkout: Checkout, base: str, *tips: str) -> str:
    """Returns the beginning of a `git rebase` for the user.

    Args:
      base, tips: see `Checkout.check_merge`.
    """
    checkout.check_merge(base, *tips)
    return f"{checkout.git_command} {' '.join(REBASE)}"


def undo_rebase(checkout: Checkout) -> str:
    """Returns the commands that undo a killed rebase and keep the user's edits."""
    command = checkout.git_command
    return stash_and(
        checkout,
        f"{command} rebase --abort, which undoes the rebase and discards commits made since it"
        " began, and edits that are not stashed; if git refuses that,"
        f" {command} rebase --quit; {checkout_of_branch(checkout)}",
    )


def checkout_of_branch(checkout: Checkout) -> str:
    """Returns the command that checks out branch k2-mps, but overwrites no ignored file."""
    return f"{checkout.git_command} checkout --no-overwrite-ignore {BRANCH}"
