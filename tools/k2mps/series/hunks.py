"""The hunks of a diff that git wrote."""

import os
import re
from collections.abc import Container
from typing import NamedTuple

# A file's first line, or a hunk; no line but a hunk's own starts with one of these signs there.
_PART = re.compile(
    rb"^(?:diff --git (.+)|@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@.*)\n"
    rb"((?:[-+ \\].*\n)*)",
    re.MULTILINE,
)


class Hunk(NamedTuple):
    path: str  # the file it is for, in k2's tree
    line: int  # the line of its header in the diff, from 1
    # old_start, old_count: the lines that it replaces, context included; a hunk whose count
    # is 0 adds after `old_start`
    old_start: int
    old_count: int
    # new_start, new_count: the lines afterwards
    new_start: int
    new_count: int
    body: tuple[bytes, ...]  # its lines, each with its sign

    @property
    def fits(self) -> bool:
        """Whether it has the lines that its header counts."""
        signs = [line[:1] for line in self.body]
        both = signs.count(b" ")
        counts = (both + signs.count(b"-"), both + signs.count(b"+"))
        return counts == (self.old_count, self.new_count)

    def changes(self, sign: bytes) -> list[bytes]:
        """The lines that it adds (b"+") or removes (b"-"), without sign."""
        return [line[1:] for line in self.body if line[:1] == sign]


def split(diff: bytes) -> list[Hunk]:
    """All hunks of a diff, in order."""
    found: list[Hunk] = []
    path, line, at = "", 1, 0
    for match in _PART.finditer(diff):
        names, old_start, old, new_start, new, body = match.groups()
        line += diff.count(b"\n", at, match.start())
        at = match.start()
        if names:
            # Both names are the same path, behind "a/" and "b/".
            path = os.fsdecode(names[2 : (len(names) - 1) // 2])
            continue
        counts = (int(old_start), int(old or 1), int(new_start), int(new or 1))
        found.append(Hunk(path, line, *counts, tuple(body.split(b"\n")[:-1])))
    return found


def count(diff: bytes, without: Container[str] = ()) -> tuple[int, int]:
    """How many lines a diff adds and removes in files that are not in `without`."""
    found = [hunk for hunk in split(diff) if hunk.path not in without]
    return (
        sum(len(hunk.changes(b"+")) for hunk in found),
        sum(len(hunk.changes(b"-")) for hunk in found),
    )
