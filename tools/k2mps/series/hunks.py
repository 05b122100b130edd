"""The hunks of a diff that git wrote."""

import os
import re
from collections.abc import Container
from typing import NamedTuple

# A file's first line, or a hunk; no line but a hunk's own starts with one of these signs there.
_PART = re.compile(
    rb"^(?:diff --git (.+)|@@ -\d{1,9}(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@.*)\n"
    rb"((?:[-+ \\].*\n)*)",
    re.MULTILINE,
)


class Hunk(NamedTuple):
    path: str  # the file it is for, in k2's tree
    line: int  # the line of its header in the diff, from 1
    old_count: int  # how many lines it replaces, context included
    new_start: int  # the first of the lines afterwards; the one before where there are none
    new_count: int  # how many these are
    body: tuple[bytes, ...]  # its lines, each with its sign

    def count(self, sign: bytes) -> int:
        """How many lines it adds (b"+"), removes (b"-") or keeps (b" ")."""
        return [line[:1] for line in self.body].count(sign)

    @property
    def fits(self) -> bool:
        """Whether it has the lines that its header counts."""
        counts = (self.count(b" ") + self.count(b"-"), self.count(b" ") + self.count(b"+"))
        return counts == (self.old_count, self.new_count)


def split(diff: bytes) -> list[Hunk]:
    """All hunks of a diff, in order."""
    found: list[Hunk] = []
    path, line, at = "", 1, 0
    for match in _PART.finditer(diff):
        names, old, new_start, new, body = match.groups()
        line += diff.count(b"\n", at, match.start())
        at = match.start()
        if names:
            # Both names are the same path, behind "a/" and "b/".
            path = os.fsdecode(names[2 : (len(names) - 1) // 2])
            continue
        counts = (int(old or 1), int(new_start), int(new or 1))
        found.append(Hunk(path, line, *counts, tuple(body.split(b"\n")[:-1])))
    return found


def count(diff: bytes, without: Container[str] = ()) -> tuple[int, int]:
    """How many lines a diff adds and removes in files that are not in `without`."""
    found = [hunk for hunk in split(diff) if hunk.path not in without]
    return sum(hunk.count(b"+") for hunk in found), sum(hunk.count(b"-") for hunk in found)
