"""Upstream's branches and tags, fetched into a clone of the tool's own."""

import contextlib
import re
import shutil
from collections.abc import Iterator

from k2mps.core import errors, git, interrupts
from k2mps.core.pins import Pin
from k2mps.core.project import Project, exclusive
from k2mps.stack.checkout import Checkout
from k2mps.stack.clone import copy, fetch

# The clone's refs for upstream's branches and HEAD, and for upstream's tags.
_FOLDERS = ("refs/upstream/heads", "refs/upstream/tags")
_ID = re.compile("[0-9a-f]{4,40}")


@contextlib.contextmanager
def clone(project: Project, checkout: Checkout) -> Iterator[Checkout]:
    """A clone of the checkout, without files. The end of the context deletes it, unless its folder
    was renamed."""
    project.build_root.mkdir(exist_ok=True)
    folder = project.partial
    with exclusive(project.build_root, str(project.build_root)):
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        try:
            yield copy(checkout, folder)
        finally:
            with interrupts.deferred():
                shutil.rmtree(folder, ignore_errors=True)


def commit_of(clone: Checkout, pin: Pin, name: str) -> str:
    """Fetches the upstream commit that an id, or the name of upstream's branch or tag, means.

    The checkout's own branches do not count: they may be old, or the user's.

    Args:
      clone: as `clone` makes it.
    """
    by_id = [name] if _ID.match(name) else []
    known = clone.commit_of(name) if by_id else None
    if known and clone.is_ancestor(known, pin.commit):
        return known
    wanted = [f"+HEAD:{_FOLDERS[0]}/HEAD"]
    wanted += [f"+refs/{kind}/*:{ref}/*" for kind, ref in zip(("heads", "tags"), _FOLDERS)]
    fetch(clone, "asking upstream", "upstream cannot be reached", pin, *wanted)
    for one in (*(f"{folder}/{name}" for folder in _FOLDERS), *by_id):
        found = clone.commit_of(one)
        holders = ("for-each-ref", "--count=1", "--contains", str(found), *_FOLDERS)
        if found and clone.git.text(*holders):
            return found
    raise errors.K2mpsError(
        f"{git.redacted(pin.url)} has no commit {name}",
        why="no branch and no tag of upstream's leads to it: another clone could not fetch it",
        next_command="give a commit id, a tag or a branch of upstream's",
    )


def give_objects(clone: Checkout, checkout: Checkout, commit: str) -> None:
    """Copies a commit of the clone into the checkout, whose refs stay as they are."""
    if not checkout.commit_of(commit):
        how = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        checkout.git.bytes(*how, "--", str(clone.git_dir), commit)
