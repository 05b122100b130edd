"""`k2mps rebase`: runs `git rebase` in the checkout.

Nothing of the rebase is the tool's: the conflicts, `--continue`, `--skip` and `--abort` are git's.
At the end, `export` with the new pin writes patches/ and upstream.toml.
"""

import shlex
from collections.abc import Sequence

from k2mps.core import errors, interrupts, process
from k2mps.core.project import Project
from k2mps.stack import unfinished, upstream
from k2mps.stack.advice import REBASE, stash_and, undo_rebase
from k2mps.stack.checkout import BRANCH, Checkout, Commit
from k2mps.stack.transaction import Transaction, begin


def rebase(project: Project, checkout: Checkout, revision: str) -> str:
    """Fetches an upstream commit, and rebases branch k2-mps onto it; returns the commit's id.

    Args:
      revision: an upstream commit, see `upstream.commit_of`.
    Raises:
      ConflictError: git has stopped, and the user must continue or abort git's rebase.
      K2mpsError: git refuses; or patches/ is not what the branch was made of.
    """
    # The transaction reads the branch and patches/ after the fetch: the user may work meanwhile.
    onto = upstream.commit_of(checkout, checkout.pinned(project.upstream().pin), revision)
    with begin(project, checkout) as transaction:
        unfinished.check_at_rest(checkout)
        _check_series(transaction)
        transaction.check_head()
        tip = transaction.head.tip
        picked = checkout.commits(f"{transaction.pin.commit}..{tip}")
        for commit in (onto, tip):  # git checks out both, if HEAD is elsewhere.
            transaction.check_in_the_way(commit, picked)
        _check_messages(checkout, picked)
        changed = checkout.changed_files()
        unfinished.check_at_rest(checkout, changed.unmerged, "conflicts")
        checkout.check_merge(transaction.pin.commit, tip, onto)
        words = (*REBASE, "--onto", onto, transaction.pin.commit, BRANCH)
        command = ("git", "-C", str(checkout.directory), *words)
        checkout.reporter.info(f"+ {shlex.join(command)}")
        # The command has the user's other configuration and the terminal, as if the user had typed
        # it.  Ctrl-C reaches git, too.  git, and not the tool, decides how the rebase ends.
        ended = False
        after = f"k2mps export --onto {onto[:12]}"
        try:
            with interrupts.deferred(), process.started(command) as running:
                status = running.wait()
                ended = not status
        except errors.InterruptedRunError as error:
            done = f"{after}, because git has ended the rebase"
            error.next_command = done if ended else undo_rebase(checkout)
            raise
    if ended:
        return onto
    if status < 0:
        raise errors.ended_by_signal("git rebase", status, undo_rebase(checkout))
    _check_ended(checkout, after)
    if not changed.edited:
        transaction.check_written(onto, transaction.head.commit)
    raise errors.K2mpsError(
        f"git has not rebased branch {BRANCH}",
        why="git's message above has the reason",
        next_command=f"{checkout.git_command} status; if it shows edits, yours or git's,"
        f" {stash_and(checkout, 'the same command again')}",
    )


def _check_series(transaction: Transaction) -> None:
    """Raises an error if branch k2-mps is not the series of patches/, on the pin."""
    base = transaction.base
    if base == transaction.pin.commit and transaction.tip_is_known:
        return
    why, advice = "patches/ was not applied there, or has changed since", "k2mps apply"
    if base not in ("", transaction.pin.commit):
        why = f"git has rebased it onto {base[:12]}"
        advice = f"k2mps export --onto {base[:12]}"
    raise errors.K2mpsError(
        f"branch {BRANCH} of {transaction.checkout.directory} is not what patches/ and the pin"
        " give",
        why=why,
        next_command=advice,
    )


def _check_messages(checkout: Checkout, commits: Sequence[Commit]) -> None:
    """Raises an error if git would drop a line of a message when it has stopped the rebase."""
    mark = checkout.comment_mark()
    for commit in commits:
        if mark and any(line.startswith(mark) for line in commit.message.split("\n")):
            raise errors.K2mpsError(
                f"a line of the message of commit {commit} begins with {mark}",
                why="git drops the line if it stops at this commit",
                next_command=f"{checkout.git_command} config commit.cleanup scissors, so that git"
                " keeps such lines; then the same command again",
            )


def _check_ended(checkout: Checkout, after: str) -> None:
    """Raises an error if git has stopped the rebase, or has left it without an end.

    Args:
      after: the command to run after the rebase.
    """
    if unfinished.rebase_was_killed(checkout):
        raise errors.K2mpsError(
            f"git has not ended the rebase in {checkout.directory}",
            why="git's message above has the reason",
            next_command=undo_rebase(checkout),
        )
    if unfinished.operation_in_progress(checkout):
        raise errors.ConflictError(
            f"git has stopped the rebase in {checkout.directory}",
            why="a patch conflicts; git's message above names the commit and the files"
            if checkout.changed_files().unmerged
            else "git's message above has the reason",
            next_command=f"resolve it as git says: {checkout.git_command} rebase --continue, --skip"
            f" or --abort; after the last one, {after}; --skip and --abort also discard other"
            " edits that are not committed",
        )
