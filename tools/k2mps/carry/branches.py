"""Upstream's branches and tags, fetched into refs of the tool's own."""

import re

from k2mps.core import errors, git
from k2mps.core.pins import Pin
from k2mps.stack.checkout import Checkout
from k2mps.stack.clone import fetch

# The checkout's ref for upstream's default branch, and its folders for all branches and tags.
TIP_REF = "refs/k2mps/upstream"
_FOLDERS = ("refs/k2mps/upstream-heads", "refs/k2mps/upstream-tags")
_ID = re.compile("[0-9a-f]{4,40}")


def fetch_all(pin: Pin, checkout: Checkout) -> str:
    """Fetches what upstream has; the last commit of its default branch."""
    wanted = [f"+HEAD:{TIP_REF}"]
    wanted += [f"+refs/{kind}/*:{ref}/*" for kind, ref in zip(("heads", "tags"), _FOLDERS)]
    options = "--prune --no-write-fetch-head"
    fetch(
        checkout, "asking upstream", "upstream cannot be reached", pin.url, *wanted, options=options
    )
    return checkout.git.text("rev-parse", TIP_REF)


def commit_of(checkout: Checkout, pin: Pin, name: str) -> str:
    """The upstream commit that a branch or tag of upstream's, or an id, names, fetched anew.

    The checkout's own branches do not count: they may be old, or the user's.
    """
    base, suffix = re.fullmatch(r"(.*?)([~^@:].*)?", name, re.DOTALL).groups()
    by_id = _ID.fullmatch(base) is not None
    known = checkout.commit_of(name) if by_id else None
    if known and checkout.is_ancestor(known, pin.commit):
        return known
    fetch_all(pin, checkout)
    names = (TIP_REF,) if base in ("", "HEAD") else [f"{one}/{base}" for one in _FOLDERS]
    for one in (*names, *([base] if by_id else [])):
        found = checkout.commit_of(f"{one}{suffix or ''}")
        holders = ("for-each-ref", "--count=1", "--contains", str(found), *_FOLDERS)
        if found and checkout.git.text(*holders):
            return found
    raise errors.K2mpsError(
        f"{git.redacted(pin.url)} has no commit {name}",
        why="no branch and no tag of upstream's leads to it: another clone could not fetch it",
        next_command="give a commit id, a tag or a branch of upstream's",
    )
