"""The hunks of a diff that git wrote.

Python places the hunks of a patch whose blob ids fit.  Measured with 38 patches on two shared
cores: all commits of the series take 0.04 s of processor time and 0.08 s in all; with `git apply`
for each patch in its place, 0.14 s and 0.25 s.  lint places no hunks, and fold lets git merge.
"""

import os
import re
from collections.abc import Container, Sequence
from typing import NamedTuple

# A file's first line, or a hunk; no line but a hunk's own starts with one of these signs there.
_PART = re.compile(
    rb"^(?:diff --git (.+)|@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*)\n((?:[-+ \\].*\n)*)",
    re.MULTILINE,
)
# bytes.splitlines would also split at other line ends than "\n".
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


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
    def first(self) -> int:
        """The index from 0 of the first line that it replaces."""
        return self.old_start - 1 if self.old_count else self.old_start

    @property
    def old(self) -> bytes:
        return _text(self.body, b"+")

    @property
    def new(self) -> bytes:
        return _text(self.body, b"-")

    def changes(self, sign: bytes) -> list[bytes]:
        """The lines that it adds (b"+") or removes (b"-"), without sign."""
        return [line[1:] for line in self.body if line[:1] == sign]

    def header(self) -> str:
        return f"@@ -{self.old_start},{self.old_count} +{self.new_start},{self.new_count} @@"


def split(diff: bytes) -> list[Hunk]:
    """All hunks of a diff, in order."""
    found: list[Hunk] = []
    path = ""
    for match in _PART.finditer(diff):
        names, old_start, old, new_start, new, body = match.groups()
        if names:
            # Both names are the same path, behind "a/" and "b/".
            path = os.fsdecode(names[2 : (len(names) - 1) // 2])
            continue
        line = diff.count(b"\n", 0, match.start()) + 1
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


def apply_all(text: bytes, found: Sequence[Hunk]) -> bytes | None:
    """A text with all hunks of a file applied; None unless each one fits exactly
    at the line of its header."""
    lines = _LINE.findall(text)
    for hunk in sorted(found, key=lambda one: one.first, reverse=True):
        place = slice(hunk.first, hunk.first + hunk.old_count)
        if b"".join(lines[place]) != hunk.old:
            return None
        lines[place] = _LINE.findall(hunk.new)
    return b"".join(lines)


def _text(body: tuple[bytes, ...], without: bytes) -> bytes:
    """The lines of a hunk without those of one sign, as a text."""
    text = b""
    for line, after in zip(body, (*body[1:], b"")):
        if line[:1] not in (without, b"\\"):
            # What follows a line without newline is "\ No newline at end of file".
            text += line[1:] + (b"" if after[:1] == b"\\" else b"\n")
    return text
