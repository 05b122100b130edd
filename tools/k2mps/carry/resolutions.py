"""Conflicts that were resolved once, so that nobody resolves them again.

As git's rerere, but in a form that can be committed: what is kept of a
conflict is a hash of its two sides and the lines that replaced them, under
`resolutions/PATCH/HASH`, and nothing of the file around it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from k2mps.core import errors

_CONFLICT = re.compile(
    rb"^<{7}[^\n]*\n(?P<ours>.*?)^\|{7}[^\n]*\n(?P<base>.*?)^={7}\r?\n"
    rb"(?P<theirs>.*?)^>{7}[^\n]*\n",
    re.MULTILINE | re.DOTALL,
)


def has_markers(text: bytes) -> bool:
    """Whether a conflict stands in a text."""
    return _CONFLICT.search(text) is not None


class Store:
    """The resolutions that are known for one patch.

    Args:
      directory: `resolutions/` of the project.
      patch: the name of the patch.
    """

    def __init__(self, directory: Path, patch: str):
        self._directory = directory / patch

    def resolve(self, text: bytes) -> bytes | None:
        """A text with all its conflicts resolved; None if one is not known."""
        known = True

        def replace(match: re.Match) -> bytes:
            nonlocal known
            try:
                return (self._directory / _key(match)).read_bytes()
            except FileNotFoundError:
                known = False
                return b""

        resolved = _CONFLICT.sub(replace, text)
        return resolved if known else None

    def remember(self, conflicting: bytes, resolved: bytes) -> bool:
        """Keeps how the conflicts of a text were resolved.

        Returns:
          False where that cannot be told, because the text between the
          conflicts was edited too.
        """
        matches = list(_CONFLICT.finditer(conflicting))
        starts = [0, *(match.end() for match in matches)]
        ends = [*(match.start() for match in matches), len(conflicting)]
        between = [conflicting[a:b] for a, b in zip(starts, ends)]
        parts = _parts(between, resolved)
        if parts is None:
            return False
        for match, part in zip(matches, parts):
            path = self._directory / _key(match)
            if path.exists() and path.read_bytes() == part:
                continue
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(part)
            except OSError as error:
                raise errors.FileAccessError(
                    f"{path}: {error.strerror or error}",
                    next_command="make the file writable, then run the same command again",
                ) from None
        return True


def _key(match: re.Match) -> str:
    """The same for the same conflict, wherever its patch stands."""
    digest = hashlib.sha256()
    for side in ("ours", "base", "theirs"):
        digest.update(match[side] + b"\0")
    return digest.hexdigest()[:20]


def _parts(between: Sequence[bytes], text: bytes) -> list[bytes] | None:
    """What stands in a text between these texts, which it must have in
    order, the first and the last at its ends; None if it has not, or if
    that can be read in two ways."""
    first, *middle, last = between
    if not text.startswith(first) or not text.endswith(last):
        return None
    at, end = len(first), len(text) - len(last)
    parts = []
    for piece in middle:
        if text.count(piece, at, end) != 1:
            return None
        found = text.index(piece, at, end)
        parts.append(text[at:found])
        at = found + len(piece)
    if at > end:
        return None
    return [*parts, text[at:end]]
