"""Upstream's branches and tags, fetched into refs of the tool's own."""

import re

from k2mps.core import errors, git
from k2mps.core.pins import Pin
from k2mps.stack.checkout import Checkout
from k2mps.stack.clone import fetch

# The checkout's folders for upstream's branches, with its HEAD, and tags.
_FOLDERS = ("refs/k2mps/upstream-heads", "refs/k2mps/upstream-tags")
_ID = re.compile("[0-9a-f]{4,40}")


def commit_of(checkout: Checkout, pin: Pin, name: str) -> str:
    """The upstream commit that a branch or tag of upstream's, or an id, names, fetched anew.

    The checkout's own branches do not count: they may be old, or the user's.
    """
    by_id = [name] if _ID.match(name) else []
    known = checkout.commit_of(name) if by_id else None
    if known and checkout.is_ancestor(known, pin.commit):
        return known
    wanted = [f"+HEAD:{_FOLDERS[0]}/HEAD"]
    wanted += [f"+refs/{kind}/*:{ref}/*" for kind, ref in zip(("heads", "tags"), _FOLDERS)]
    options = "--prune --no-write-fetch-head"
    fetch(checkout, "asking upstream", "upstream cannot be reached", pin, *wanted, options=options)
    for one in (*(f"{folder}/{name}" for folder in _FOLDERS), *by_id):
        found = checkout.commit_of(one)
        holders = ("for-each-ref", "--count=1", "--contains", str(found), *_FOLDERS)
        if found and checkout.git.text(*holders):
            return found
    raise errors.K2mpsError(
        f"{git.redacted(pin.url)} has no commit {name}",
        why="no branch and no tag of upstream's leads to it: another clone could not fetch it",
        next_command="give a commit id, a tag or a branch of upstream's",
    )
