"""Splits git's diffs into hunks."""

import os
import re
from typing import NamedTuple

# Matches the first line of a file's part of the diff, or a whole hunk.  After a hunk's header, the
# hunk goes on as long as lines start with a plus, a minus, a blank or a backslash.
_PART = re.compile(
    rb"^(?:diff --git (.+)|@@ -\d{1,9}(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@.*)\n"
    rb"((?:[-+ \\].*\n)*)",
    re.MULTILINE,
)


class Hunk(NamedTuple):
    path: str  # the edited file, in k2's tree
    line: int  # the number of the hunk's header line in the diff, from 1
    old_count: int  # how many lines of the old file the hunk has, with context
    # The number of the hunk's first line in the new file; if new_count is 0, the number of the line
    # before the hunk.
    new_start: int
    new_count: int  # how many lines of the new file the hunk has, with context
    body: tuple[bytes, ...]  # the hunk's lines without the header, each with its sign

    @property
    def fits(self) -> bool:
        """Whether the hunk has as many lines as its header says."""
        signs = [line[:1] for line in self.body]
        added, removed, kept = map(signs.count, (b"+", b"-", b" "))
        return (kept + removed, kept + added) == (self.old_count, self.new_count)


def split(diff: bytes) -> list[Hunk]:
    """Returns all hunks of a diff, in order."""
    hunks: list[Hunk] = []
    path, line, at = "", 1, 0
    for match in _PART.finditer(diff):
        names, old, new_start, new, body = match.groups()
        line += diff.count(b"\n", at, match.start())
        at = match.start()
        if names:
            # The line has the same path twice, after "a/" and after "b/".
            path = os.fsdecode(names[2 : (len(names) - 1) // 2])
            continue
        counts = (int(old or 1), int(new_start), int(new or 1))
        hunks.append(Hunk(path, line, *counts, tuple(body.split(b"\n")[:-1])))
    return hunks
