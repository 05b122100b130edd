"""Fetches upstream's branches and tags into a temporary clone of the checkout."""

import contextlib
import re
import shutil
from collections.abc import Iterator

from k2mps.core import errors, git, interrupts
from k2mps.core.pins import Pin
from k2mps.core.project import Project, exclusive
from k2mps.stack.checkout import Checkout
from k2mps.stack.clone import copy, fetch

# Folders of the clone's refs: for upstream's branches and HEAD, and for upstream's tags.
_FOLDERS = ("refs/upstream/heads", "refs/upstream/tags")
_ID = re.compile("[0-9a-f]{4,40}")


@contextlib.contextmanager
def clone(project: Project, checkout: Checkout) -> Iterator[Checkout]:
    """Makes a clone of the checkout, without files.

    The clone is deleted at the end of the context, except if the caller has renamed its folder.
    """
    project.build_root.mkdir(exist_ok=True)
    folder = project.partial
    with exclusive(project.build_root, str(project.build_root)):
        shutil.rmtree(folder, ignore_errors=True)  # A killed run may have left the folder.
        try:
            yield copy(checkout, folder)
        finally:
            with interrupts.deferred():
                shutil.rmtree(folder, ignore_errors=True)


def commit_of(clone: Checkout, pin: Pin, name: str) -> str:
    """Fetches an upstream commit into a clone, and returns the commit's id.

    The branches of the checkout are not searched: they may be out of date, or be the user's own.

    Args:
      clone: a result of `clone`.
      name: the commit's id, or a branch or tag of upstream.
    Raises:
      K2mpsError: no branch or tag of upstream leads to a commit `name`.
      UnreachableError: upstream cannot be reached.
    """
    by_id = [name] if _ID.match(name) else []
    known = clone.commit_of(name) if by_id else None
    if known and clone.is_ancestor(known, pin.commit):
        return known
    wanted = [f"+HEAD:{_FOLDERS[0]}/HEAD"]
    wanted += [f"+refs/{kind}/*:{ref}/*" for kind, ref in zip(("heads", "tags"), _FOLDERS)]
    fetch(clone, "asking upstream", "upstream cannot be reached", pin, *wanted)
    for one in (*(f"{folder}/{name}" for folder in _FOLDERS), *by_id):
        commit = clone.commit_of(one)
        holders = ("for-each-ref", "--count=1", "--contains", str(commit), *_FOLDERS)
        if commit and clone.git.text(*holders):
            return commit
    raise errors.K2mpsError(
        f"{git.redacted(pin.url)} has no commit {name}",
        why="no branch or tag of upstream leads to it, so another clone could not fetch it",
        next_command="give the id of an upstream commit, or a branch or tag of upstream",
    )


def give_objects(clone: Checkout, checkout: Checkout, commit: str) -> None:
    """Copies a commit of the clone into the checkout's repository, and changes no ref there."""
    if not checkout.commit_of(commit):
        how = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        checkout.git.bytes(*how, "--", str(clone.git_dir), commit)
