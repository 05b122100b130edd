"""Finds commits of upstream.  No ref of the user's repository changes."""

import itertools
import os
import re
import shlex
from collections.abc import Mapping

from k2mps.core import errors, git
from k2mps.core.pins import Pin
from k2mps.stack import clone
from k2mps.stack.checkout import BRANCH_REF, Checkout
from k2mps.stack.extraction import name_of

_ID = re.compile("[0-9a-f]{4,40}")
_VERSION = re.compile(rb'^set\(K2_VERSION "?([0-9.]+)"?\)', re.MULTILINE)
# A line of the reflog for a commit that git has made.
_MADE = re.compile(
    r"^([0-9a-f]{40}) (?:(?:commit|cherry-pick|revert|am)\b"
    r"|(?:rebase|pull)\b.*\((?!start|finish|abort)[a-z]+\))",
    re.MULTILINE,
)
_REBASED = re.compile(rf".+ \(finish\): {BRANCH_REF} onto ([0-9a-f]{{40}})")


def commit_of(checkout: Checkout, pin: Pin, revision: str) -> str:
    """Fetches a commit of upstream, and returns its id.

    The branches of the checkout are not searched: they may be out of date, or be the user's own.

    Args:
      revision: the commit's id, or a branch or tag of upstream.  An id comes before a branch or tag
        of the same name, if the checkout has the commit.
    Raises:
      K2mpsError: no branch of upstream and no tag leads to a commit `revision`.
      UnreachableError: upstream cannot be reached.
    """
    from k2mps.core import repository

    is_id = bool(_ID.fullmatch(revision))
    commit = checkout.commit_of(revision) if is_id else None
    if commit and checkout.is_ancestor(commit, pin.commit):
        return commit
    heads = repository.remote_refs(checkout.directory, pin.url, checkout.reporter)
    if commit and _leads_to(checkout, heads, commit):
        return commit
    refs = [ref for ref in (f"refs/heads/{revision}", f"refs/tags/{revision}") if ref in heads]
    id_ = heads[refs[0]] if refs else revision
    commit = checkout.commit_of(id_) if refs else None
    if not commit and (refs or is_id):
        # For an id, all branches and tags are fetched, because one of them must lead to the commit.
        fetched = refs[:1] or list(heads)
        command = ("git", "-C", str(checkout.directory), "fetch", git.redacted(pin.url), *fetched)
        checkout.reporter.info(f"+ {shlex.join(command)}")
        clone.fetch(checkout, "asking upstream", "upstream cannot be reached", pin, *fetched)
        commit = checkout.commit_of(id_)
    if not commit or not _leads_to(checkout, heads, commit):
        raise errors.K2mpsError(
            f"{git.redacted(pin.url)} has no commit {revision}",
            why="no branch or tag of upstream leads to it, so another clone could not fetch it",
            next_command="give the id of an upstream commit, or a branch or tag of upstream",
        )
    return commit


def _leads_to(checkout: Checkout, heads: Mapping[str, str], commit: str) -> bool:
    """Whether a branch or tag of upstream leads to a commit.

    Args:
      heads: the commits of upstream's branches and tags, by name.
    """
    return any(checkout.is_ancestor(commit, head) for head in heads.values())


def pin_at(checkout: Checkout, old: Pin, commit: str) -> Pin:
    """Returns the pin for a commit; reads k2's version from the commit's CMakeLists.txt."""
    result = checkout.objects.run("cat-file", "blob", f"{commit}:CMakeLists.txt")
    match = _VERSION.search(result.stdout)
    version = match[1].decode() if match else old.version
    return Pin(old.url, commit, checkout.tree_of(commit), version)


def rebase_bases(checkout: Checkout, pin: str) -> list[str]:
    """Returns the upstream commits onto which `git rebase` has put branch k2-mps, the newest first.

    The reflog of the branch has them.
    """
    matches = (_REBASED.fullmatch(message) for _, message in _reflog(checkout))
    commits = dict.fromkeys(match[1] for match in matches if match)
    return [commit for commit in commits if _is_upstream_commit(checkout, pin, commit)]


def before_rebases(checkout: Checkout) -> list[str]:
    """Returns the last commit of branch k2-mps before each `git rebase`, the newest first.

    Rebases before the last `export` that moved the branch do not count.
    """
    commits = []
    for (_, message), (before, _) in itertools.pairwise(_reflog(checkout)):
        if message == "k2mps export":
            break
        if _REBASED.fullmatch(message):
            commits.append(before)
    return commits


def _reflog(checkout: Checkout) -> list[tuple[str, str]]:
    """Returns the commits to which branch k2-mps has moved, and why, the newest first."""
    command = ("log", "--walk-reflogs", "--format=%H %gs", BRANCH_REF, "--")
    lines = os.fsdecode(checkout.git.run(*command).stdout).split("\n")
    return [(line[:40], line[41:]) for line in lines if line]


def below_series(checkout: Checkout, pin: str, tip: str) -> list[str]:
    """Returns the commits on top of a pin that are below the series, and that were not made here.

    If another branch was rebased, and branch k2-mps then moved to it, the reflog of branch k2-mps
    does not name the upstream commit.  But git's reflogs list each commit that was made in this
    repository.

    Args:
      tip: the last commit of the branch, which has the pin.
    """
    commits = checkout.commits(f"{pin}..{tip}")
    below = list(itertools.takewhile(lambda commit: not name_of(commit), commits))
    if not below:
        return []
    log = checkout.git.run("log", "--walk-reflogs", "--all", "--format=%H %gs", "--").stdout
    if not log:
        return []  # git keeps no reflogs here, so nothing is known of the commits.
    made = set(_MADE.findall(os.fsdecode(log)))
    return [commit.id for commit in below if commit.id not in made]


def rebase_target(checkout: Checkout, pin: str) -> str:
    """Returns the upstream commit onto which an unfinished `git rebase` moves the series; empty if
    there is no such rebase."""
    for folder in ("rebase-merge", "rebase-apply"):
        file = checkout.git_dir / folder / "onto"
        if file.is_file():
            commit = file.read_text(encoding="utf-8").strip()
            return commit if _is_upstream_commit(checkout, pin, commit) else ""
    return ""


def _is_upstream_commit(checkout: Checkout, pin: str, commit: str) -> bool:
    """Whether a commit, onto which the user has rebased, neither is of the series nor on top.

    Below the pin, all commits are upstream's, even if upstream has taken the message of a patch.
    """
    search = ("log", "-1", "--format=%H", "--grep=^Patch-Filename: ", commit, "--not", pin, "--")
    return bool(checkout.commit_of(commit)) and not checkout.objects.bytes(*search)
