"""Splits git's diffs into hunks, and applies hunks."""

import os
import re
from collections.abc import Sequence
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


def edited(content: bytes, hunks: Sequence[Hunk]) -> bytes:
    """Returns a file after an edit.

    The caller must check the result's id, because this function does not compare the file with the
    hunks.
    """
    old, new, at = content.split(b"\n"), [], 0
    if not old[-1]:
        old.pop()  # the part after the last newline
    has_newline = True  # at the end of the new file
    for hunk in hunks:
        unchanged = hunk.new_start - bool(hunk.new_count) - len(new)
        new += old[at : at + unchanged]
        at += unchanged
        for line, before in zip(hunk.body, (b"", *hunk.body)):
            sign, text = line[:1], line[1:]
            if sign in (b" ", b"+"):
                new.append(text)
                has_newline = True
            elif sign == b"\\" and before[:1] != b"-":  # no newline at the end of the file
                has_newline = False
            at += sign in (b" ", b"-")
    if old[at:]:
        has_newline = content.endswith(b"\n")
    return b"\n".join([*new, *old[at:], *([b""] if has_newline else [])])
