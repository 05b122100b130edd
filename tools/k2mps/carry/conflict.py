"""Why a patch does not apply to another upstream commit: for each hunk that conflicts, the kind of
conflict and the upstream commits that touched its lines."""

import dataclasses
import enum
import os
from collections.abc import Iterator, Sequence

from k2mps.core import git, objects
from k2mps.series import hunks
from k2mps.series.hunks import Hunk
from k2mps.stack.checkout import Change, Checkout, Commit

# A shorter line is in too many files to show where upstream moved it.
_TELLING_LENGTH = 20


class Kind(str, enum.Enum):
    """What upstream did to the lines that a patch changes."""

    MOVED = "moved"
    DELETED = "deleted"
    OVERLAPPING = "overlapping"
    UPSTREAM = "already upstream"


@dataclasses.dataclass(frozen=True)
class Culprit:
    """An upstream commit."""

    id: str
    author: str
    date: str
    subject: str

    def __str__(self) -> str:
        return f"{self.id[:12]} {self.date} {self.author}: {self.subject}"


@dataclasses.dataclass(frozen=True)
class Place:
    """One hunk, or one whole file, that conflicts."""

    path: str  # the file, at its path in the patch
    hunk: str  # the hunk as text; empty for a whole file
    kind: Kind
    detail: str  # more about the conflict, or an empty text
    # The upstream commits that touched the place, the nearest to the old pin first.
    commits: tuple[Culprit, ...]

    def lines(self) -> list[str]:
        """For people."""
        header = self.hunk.split("\n", 1)[0]
        title = f"{self.path} {header}".rstrip() + f": {self.kind.value}"
        found = [f"{title} ({self.detail})" if self.detail else title]
        found += [f"  {line}" for line in self.hunk.splitlines()[1:]]
        found += [f"  touched by {commit}" for commit in self.commits]
        return found


class Explainer:
    """Explains conflicts of the series, made for the upstream commit `base`, with `target`."""

    def __init__(self, checkout: Checkout, base: str, target: str):
        self._checkout = checkout
        self._base = base
        self._target = target
        fork = checkout.git.run("merge-base", base, target)
        start = fork.stdout.decode().strip() or base
        # From the base back to the fork, then forward to the target.
        self._route = ((f"{start}..{base}", True), (f"{start}..{target}", False))

    def explain(self, commit: Commit, paths: Sequence[str] | None = None) -> list[Place]:
        """The places at which a commit of the series conflicts, in these files or in all."""
        found = []
        for change in self._checkout.changes(commit.parents[0], commit.id):
            if paths is None or change.path in paths:
                found += self._file(commit, change)
        return found

    def _file(self, commit: Commit, change: Change) -> list[Place]:
        path = change.path
        _, ours = self._checkout.entries(self._target, [path]).get(path, (None, None))

        def whole(kind: Kind, detail: str, only: str = "") -> list[Place]:
            commits = tuple(culprit for culprit, _ in self._log(path, only))
            return [Place(path, "", kind, detail, commits)]

        if ours == change.old_id and None in (ours, change.new_id):
            return []
        if change.old_id is None:
            kind = Kind.UPSTREAM if ours == change.new_id else Kind.OVERLAPPING
            return whole(kind, "upstream has added this file")
        if ours is None:
            to = self._checkout.renames(self._base, self._target).get(path)
            return whole(Kind.MOVED, f"to {to}", "D") if to else whole(Kind.DELETED, "", "D")
        if change.new_id is None:
            return whole(Kind.OVERLAPPING, "the patch deletes it")
        blobs = objects.read(self._checkout.git, [change.old_id, ours])
        old, text = blobs[change.old_id], blobs[ours]
        return [
            self._place(commit, hunk, text)
            for hunk in self._hunks(commit.parents[0], commit.id, path, 1)
            if self._checkout.git.merge(text, old, hunks.apply_all(old, [hunk])) is None
        ]

    def _place(self, commit: Commit, hunk: Hunk, text: bytes) -> Place:
        kind, detail = self._judge(hunk, text)
        body = b"\n".join(hunk.body).decode("utf-8", "replace")
        return Place(
            hunk.path, f"{hunk.header()}\n{body}", kind, detail, self._touched(commit, hunk)
        )

    def _judge(self, hunk: Hunk, text: bytes) -> tuple[Kind, str]:
        added = b"\n".join(hunk.changes(b"+"))
        removed = b"\n".join(hunk.changes(b"-"))
        lines = b"\n" + text
        if added and _has(lines, added) and not (removed and _has(lines, removed)):
            return Kind.UPSTREAM, "upstream has the lines that it adds"
        if removed and _has(lines, removed):
            return Kind.OVERLAPPING, "upstream changed the lines next to it"
        if not removed:
            return Kind.OVERLAPPING, "upstream changed the lines around it"
        to = self._elsewhere(hunk)
        if to:
            return Kind.MOVED, f"the lines are now in {to}"
        return Kind.OVERLAPPING, "upstream changed the lines that it replaces"

    def _elsewhere(self, hunk: Hunk) -> str:
        """The files to which upstream moved the lines that the hunk replaces."""
        line = max(hunk.changes(b"-"), key=len).strip()
        if len(line) < _TELLING_LENGTH:
            return ""
        before, now = (set(self._grep(line, commit)) for commit in (self._base, self._target))
        return ", ".join(sorted(now - before - {hunk.path}))

    def _grep(self, line: bytes, commit: str) -> list[str]:
        result = self._checkout.git.run(
            *"grep --name-only --fixed-strings -z -e".split(), os.fsdecode(line), commit, "--"
        )
        return [name.partition(":")[2] for name in git.split_z(result.stdout)]

    def _touched(self, commit: Commit, hunk: Hunk) -> tuple[Culprit, ...]:
        """The upstream commits that changed a hunk's lines, or lines next to them."""
        signs = b"".join(line[:1] for line in hunk.body)
        leading = len(signs) - len(signs.lstrip(b" "))
        trailing = len(signs) - len(signs.rstrip(b" "))
        lines = (hunk.first + leading, hunk.first + hunk.old_count - trailing)
        # Patches before this one may have moved its lines.
        lines, _ = _follow(lines, self._hunks(commit.parents[0], self._base, hunk.path, 0))
        found = []
        for culprit, diff in self._log(hunk.path):
            lines, touched = _follow(lines, hunks.split(diff))
            if touched:
                found.append(culprit)
        return tuple(found)

    def _hunks(self, old: str, new: str, path: str, context: int) -> list[Hunk]:
        """The hunks that lead from one commit's file to another's."""
        options = f"diff-tree -p -U{context} --no-renames --text"
        return hunks.split(self._checkout.git.bytes(*options.split(), old, new, "--", path))

    def _log(self, path: str, only: str = "") -> Iterator[tuple[Culprit, bytes]]:
        """The commits that change a file, the nearest to the base first, each with its diff away
        from the base; `only` is an argument of `git log --diff-filter`."""
        options = "log --first-parent --diff-merges=first-parent -p -U0 --no-renames --text"
        for range_, back in self._route:
            output = self._checkout.git.bytes(
                *options.split(),
                "-R" if back else "--reverse",
                *([f"--diff-filter={only}"] if only else ()),
                "--format=%x01%H%x02%an%x02%cs%x02%s",
                range_,
                "--",
                path,
            )
            for entry in output.split(b"\x01")[1:]:
                head, _, diff = entry.partition(b"\n")
                yield Culprit(*head.decode("utf-8", "replace").split("\x02")), diff


def _follow(lines: tuple[int, int], steps: Sequence[Hunk]) -> tuple[tuple[int, int], bool]:
    """A range of lines after a change of its file, and whether the change touches the range.

    The range counts from 0, without its end.  A change of the next line touches the range: git
    does not merge adjoining changes.
    """
    low, high = lines
    before = within = 0
    touched = False
    for hunk in steps:
        first, end = hunk.first, hunk.first + hunk.old_count
        grown = hunk.new_count - hunk.old_count
        if end < low:
            before += grown
        elif first <= high:
            touched = True
            within += grown
            low, high = min(low, first), max(high, end)
    return (low + before, high + before + within), touched


def _has(text: bytes, block: bytes) -> bool:
    """Whether a text, with a newline before it, has these whole lines."""
    return b"\n" + block + b"\n" in text
