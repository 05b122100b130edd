"""Resolutions of conflicts, which a later rebase replays.

This is git's rerere in a form that can be committed.  rerere keeps whole files of upstream's;
`resolutions/PATCH/HASH` has only the lines that replaced a conflict.  HASH is of the conflict's
sides.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from k2mps.core.pins import sha256

_CONFLICT = re.compile(
    rb"^<{7}[^\n]*\n(?P<ours>.*?)^\|{7}[^\n]*\n(?P<base>.*?)^={7}\r?\n"
    rb"(?P<theirs>.*?)^>{7}[^\n]*\n",
    re.MULTILINE | re.DOTALL,
)


def has_markers(text: bytes) -> bool:
    return _CONFLICT.search(text) is not None


def resolve(folder: Path, text: bytes) -> bytes | None:
    """A text with its conflicts resolved by its patch's folder; None for an unknown conflict."""
    try:
        return _CONFLICT.sub(lambda match: (folder / _key(match)).read_bytes(), text)
    except FileNotFoundError:
        return None


def remember(folder: Path, conflicting: bytes, resolved: bytes) -> None:
    """Keeps how the conflicts of a text were resolved, unless the user edited the text between."""
    matches = list(_CONFLICT.finditer(conflicting))
    starts = [0, *(match.end() for match in matches)]
    ends = [*(match.start() for match in matches), len(conflicting)]
    between = [conflicting[a:b] for a, b in zip(starts, ends)]
    for match, part in zip(matches, _parts(between, resolved)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _key(match)).write_bytes(part)


def _key(match: re.Match) -> str:
    sides = (match[side] + b"\0" for side in ("ours", "base", "theirs"))
    return sha256(b"".join(sides))[:20]


def _parts(between: Sequence[bytes], text: bytes) -> list[bytes]:
    """The parts of a text between pieces, the first and the last of which are at the text's ends;
    empty where the text lacks a piece or has it twice."""
    first, *middle, last = between
    if not text.startswith(first) or not text.endswith(last):
        return []
    at, end = len(first), len(text) - len(last)
    parts = []
    for piece in middle:
        if text.count(piece, at, end) != 1:
            return []
        found = text.index(piece, at, end)
        parts.append(text[at:found])
        at = found + len(piece)
    return [*parts, text[at:end]] if at <= end else []
