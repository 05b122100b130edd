"""The commands `new` and `fold`, which make patches of the edits in the checkout.

Each command makes a commit of the patch, and puts the later patches' commits onto it by `git
merge-tree`, which touches no file.  If the last commit has exactly the files of the checkout, the
command moves the branch to this commit, and writes patches/ as `export` does.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from k2mps.core import errors
from k2mps.core.git import pathspecs
from k2mps.core.project import Project
from k2mps.series import patch_folder, patch_text, series_file
from k2mps.series.patch_text import FROM, Patch
from k2mps.stack import export, extraction, unfinished
from k2mps.stack.advice import stash_and
from k2mps.stack.checkout import BRANCH, Checkout, Commit
from k2mps.stack.commits import commit_date, merged, replay
from k2mps.stack.extraction import Plan
from k2mps.stack.transaction import Transaction, begin

# The file has changed since `git add`.  A patch is made of files, so this version would be lost.
_STAGED = "staged versions that the files do not have"


def new(
    project: Project, checkout: Checkout, subject: str, body: str = "", paths: Sequence[str] = ()
) -> Plan:
    """Makes a patch of the checkout's edits, at the end of the series.

    The author is the user of git's configuration, or the tool if git has no valid name and address.

    Args:
      subject, body: the parts of the commit message.
      paths: untracked files and directories that become part of the patch.
    Returns:
      The files of patches/ that were written.
    """
    with begin(project, checkout) as transaction:
        commits = _series(transaction)
        tree = _edited_tree(transaction, paths)
        if tree == transaction.head.tree:
            return _complete(transaction, commits)
        _check_exported(transaction, commits)
        taken = set(extraction.names_of(commits, {}))
        subject = " ".join(subject.split())
        name = extraction.name_for(subject, taken)
        body = patch_text.plain(body)
        _, groups = series_file.parse(transaction.files["patches/series"].content)
        status = series_file.first_status(series_file.last_group(groups))
        patch = Patch(name, subject, status, body, (), b"")
        flaw = patch_text.flaw(patch)
        if flaw:
            _, reason = flaw
            raise errors.K2mpsError(
                reason, next_command="run the same command again with other words"
            )
        committer = f"{FROM} {commit_date(checkout, transaction.pin.commit)}"
        author = committer
        user_name, address = checkout.user()
        user = f"{user_name} <{address}>"
        if patch_text.AUTHOR.fullmatch(user):
            author = f"{user} {int(time.time())} {time.strftime('%z')}"
        commit = checkout.objects.commit(
            tree, transaction.head.commit, patch.commit_message(), author, committer
        )
        return _finish(transaction, f"new {name}", commit, tree, paths)


def fold(project: Project, checkout: Checkout, name: str, paths: Sequence[str] = ()) -> Plan:
    """Adds the checkout's edits to an existing patch.

    Args:
      name: the patch's file name.
      paths: untracked files and directories that become part of the patch.
    Returns:
      The files of patches/ that were written.
    """
    with begin(project, checkout) as transaction:
        commits = _series(transaction)
        names = extraction.names_of(commits, {})
        at = patch_folder.index(names, name)
        tree = _edited_tree(transaction, paths)
        if tree == transaction.head.tree:
            return _complete(transaction, commits)
        _check_exported(transaction, commits)
        objects = checkout.objects
        date = commit_date(checkout, transaction.pin.commit)
        # If the edits change lines of a later patch, this merge leaves conflict markers.  Then
        # `replay` fails at that patch, and its error names the patch.
        edits = objects.commit(tree, transaction.head.commit, "")
        commit = commits[at]
        folded = merged(objects, transaction.head.commit, commit.tree, edits).tree
        author = f"{commit.author} {commit.when}"
        committer = f"{FROM} {date}"
        start = objects.commit(folded, commit.parents[0], commit.message, author, committer)
        tip = replay(checkout, date, start, commits[at + 1 :])
        return _finish(transaction, f"fold {names[at]}", tip, tree, paths)


def _series(transaction: Transaction) -> list[Commit]:
    """Returns the commits of the branch."""
    unfinished.check_at_rest(transaction.checkout)
    commits = export.exportable(transaction, transaction.pin)
    if not transaction.applied and not commits:
        raise errors.K2mpsError(
            f"{transaction.checkout.directory} does not have the series applied",
            next_command="k2mps apply",
        )
    return commits


def _unexported(transaction: Transaction, commits: Sequence[Commit]) -> Plan | None:
    """Returns what `export` would write; None if the branch is what `apply` makes of patches/."""
    if transaction.tip_is_known and transaction.applied.tip == transaction.head.tip:
        return None
    plan = transaction.plan(commits)
    transaction.check_files(plan, "the command")
    return plan


def _check_exported(transaction: Transaction, commits: Sequence[Commit]) -> None:
    """Raises an error if the branch has commits that patches/ lacks, or the reverse."""
    plan = _unexported(transaction, commits)
    if plan and (plan.changed or plan.removed):
        checkout = transaction.checkout
        stash = stash_and(
            checkout, f"k2mps export, {checkout.git_command} stash pop, and the same command again"
        )
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} has commits that are not in patches/",
            why=f"they change {errors.some([*plan.changed, *plan.removed])}",
            next_command=f"commit the edits there, too, then k2mps export; or {stash}",
        )


def _edited_tree(transaction: Transaction, paths: Sequence[str]) -> str:
    """Returns a tree of the tracked files, with their edits, and of the files in `paths`.

    The function works on a temporary index; the checkout's index does not change.
    """
    checkout = transaction.checkout
    changed = checkout.changed_files()
    unfinished.check_at_rest(checkout, changed.unmerged, "conflicts")
    unfinished.check_at_rest(checkout, changed.staged_only, _STAGED)
    with tempfile.TemporaryDirectory(prefix="k2mps-") as folder:
        index = Path(folder, "index").absolute()  # $TMPDIR may be relative
        # The copied index has the times of the files, so git reads only the edited files.
        shutil.copy2(checkout.git_dir / "index", index)
        tree = _add(checkout, paths, {"GIT_INDEX_FILE": str(index)})
    changed_paths = checkout.changed_paths(transaction.head.commit, tree)
    checkout.check_attributes({*changed.edited, *changed_paths})
    return tree


def _add(checkout: Checkout, paths: Sequence[str], environment: dict[str, str]) -> str:
    """Adds the edits and the files in `paths` to an index; returns the index's tree.

    Args:
      environment: has GIT_INDEX_FILE, the path of the index; empty for the checkout's own index.
    """
    checkout.git.bytes("add", "--update", "--", ".", environment=environment)
    if paths:
        # If the file exists below the current folder, the path is relative to this folder;
        # otherwise it is relative to the checkout.
        named = [os.path.abspath(path) if os.path.lexists(path) else path for path in paths]
        words = ("add", "--", *named)
        result = checkout.git.run(*words, environment=environment)
        if result.status:
            failure = checkout.git.failure(words, result)
            if "are ignored by" in result.stderr:
                failure.next_command = (
                    f"{checkout.git_command} add -f -- {pathspecs(named)}, then the same command"
                    " again"
                )
            raise failure
    return checkout.git.text("write-tree", environment=environment)


def _complete(transaction: Transaction, commits: Sequence[Commit]) -> Plan:
    """Handles a checkout without edits.

    If an earlier run was killed after it had made the commits, this function writes patches/.
    Otherwise it raises an error, because there is nothing to make a patch of.
    """
    checkout = transaction.checkout
    plan = _unexported(transaction, commits)
    if not plan or plan.removed:
        untracked = checkout.untracked_files()
        raise errors.K2mpsError(
            f"nothing was edited in {checkout.directory}",
            why=f"git does not track {errors.some(untracked, 5)}" if untracked else "",
            next_command="edit files there, or name the new ones, in the same command",
        )
    checkout.reporter.warn(f"nothing is edited; branch {BRANCH} has commits that patches/ lacked")
    tip = export.canonical(transaction, plan, commits, transaction.pin)
    transaction.write(plan, tip, "export")
    return plan


def _finish(
    transaction: Transaction, command: str, tip: str, tree: str, paths: Sequence[str]
) -> Plan:
    """Moves the branch to the commit `tip`, and writes patches/.

    Args:
      command: the command's name, for messages.
      tree: the tree of the edited files; the tree of `tip` must be equal.
      paths: the new files that are part of the patch.
    """
    checkout = transaction.checkout
    commits = checkout.commits(f"{transaction.pin.commit}..{tip}")
    if commits[-1].tree != tree:
        raise errors.K2mpsError(
            f"k2mps {command} would change the files of the checkout",
            why="a later patch changes the same lines, or lines next to them",
            next_command="k2mps fold into that patch, or k2mps new",
        )
    plan = transaction.plan(commits)
    transaction.check_files(plan, command)
    exported = export.canonical(transaction, plan, commits, transaction.pin)
    # The user may have run `git add` meanwhile.
    unfinished.check_at_rest(checkout, checkout.changed_files().staged_only, _STAGED)
    # The checkout's index gets the edits as well, so that git sees no edit afterwards.
    if _add(checkout, paths, {}) != tree:
        raise errors.K2mpsError(
            f"files of {checkout.directory} changed meanwhile",
            next_command="run the same command again",
        )
    transaction.write(plan, exported, command)
    return plan
