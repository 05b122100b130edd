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
        context = signs.count(b" ")
        old_count = context + signs.count(b"-")
        new_count = context + signs.count(b"+")
        return old_count == self.old_count and new_count == self.new_count


def split(diff: bytes) -> list[Hunk]:
    """Returns all hunks of a diff, in order."""
    hunks: list[Hunk] = []
    path = ""
    line, counted_to = 1, 0  # the number of the line at the offset `counted_to`
    for match in _PART.finditer(diff):
        names, old_count, new_start, new_count, body = match.groups()
        line += diff.count(b"\n", counted_to, match.start())
        counted_to = match.start()
        if names:
            # The line has the same path twice, after "a/" and after "b/".
            path = os.fsdecode(names[2 : (len(names) - 1) // 2])
            continue
        lines = body.split(b"\n")[:-1]
        hunk = Hunk(
            path, line, int(old_count or 1), int(new_start), int(new_count or 1), tuple(lines)
        )
        hunks.append(hunk)
    return hunks


def edited(content: bytes, hunks: Sequence[Hunk]) -> bytes:
    """Returns a file after an edit.

    The caller must check the result's id, because this function does not compare the file with the
    hunks.
    """
    old = content.split(b"\n")
    if not old[-1]:
        old.pop()  # the part after the last newline
    at = 0  # the index, in `old`, of the next line
    new: list[bytes] = []
    has_newline = True  # at the end of the new file
    for hunk in hunks:
        lines_before = hunk.new_start - 1 if hunk.new_count else hunk.new_start
        unchanged = lines_before - len(new)
        new += old[at : at + unchanged]
        at += unchanged
        last_sign = b""
        for line in hunk.body:
            sign, text = line[:1], line[1:]
            if sign in (b" ", b"+"):
                new.append(text)
            elif sign == b"\\" and last_sign != b"-":  # no newline at the end of the file
                has_newline = False
            if sign in (b" ", b"-"):
                at += 1
            last_sign = sign
    if old[at:]:
        new += old[at:]
        has_newline = content.endswith(b"\n")
    if has_newline:
        new.append(b"")
    return b"\n".join(new)
