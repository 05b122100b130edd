"""Why a patch does not apply to another upstream commit: the files that conflict, and the upstream
commits that touched the lines."""

import dataclasses

from k2mps.stack.checkout import Checkout

# The number of commits that are shown for a file.
_SHOWN = 8


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
    """A file that conflicts."""

    path: str
    # The upstream commits that touched its lines, the oldest first; where git finds none, those
    # that touched the file.
    commits: tuple[Culprit, ...]

    def lines(self) -> list[str]:
        """For people."""
        return [self.path, *(f"  touched by {commit}" for commit in self.commits)]


def place(checkout: Checkout, path: str, text: bytes, base: str, target: str) -> Place:
    """Explains the conflicts in a file.

    Args:
      text: the file with git's conflict markers; empty where it has none.
      base, target: the commits of upstream that the patch is for, and that it conflicts with.
    """
    way = f"{base}..{target}"
    lines = [f"-L{start},{end}:{path}" for start, end in _ranges(text)]
    found = _log(checkout, "-s", *lines, way) if lines else []
    # Backwards, upstream has not made these changes yet.
    found = found or _log(checkout, "--full-history", f"{base}...{target}", "--", path)
    return Place(path, tuple(found[:_SHOWN]))


def _ranges(text: bytes) -> list[tuple[int, int]]:
    """The lines of the conflicts, from 1, in the target's version of the file."""
    found, number, start = [], 0, 0
    inside = theirs = False
    for line in text.split(b"\n"):
        if line.startswith(b"<<<<<<< "):
            inside, start = True, number + 1
        elif inside and line[:7] in (b"|||||||", b"======="):
            theirs = True
        elif inside and line.startswith(b">>>>>>> "):
            # Git reports adjoining changes as one conflict: a line more shows them.
            found.append((max(start, 1), max(number, start)))
            inside = theirs = False
        elif not theirs:
            number += 1
    return found


def _log(checkout: Checkout, *words: str) -> list[Culprit]:
    options = "log --no-merges --reverse --format=%x01%H%x02%an%x02%cs%x02%s".split()
    result = checkout.git.run(*options, *words)
    entries = result.stdout.decode("utf-8", "replace").split("\x01")[1:]
    return [Culprit(*entry.strip().split("\x02", 3)) for entry in entries]
