"""Replacing a set of files, all or none, whatever happens meanwhile.

The new contents are staged first, where running out of space harms nothing.
Then a journal is written, each file that will go is kept by a hard link, and
the new files are moved to their places.  An error or a signal on the way puts
the old files back; a process that is killed outright leaves the journal, and
the next run does the same from it (`Leftover`).  Files that are not named in
the transaction are never touched, and one that is put back is the same file,
with its old times.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path


class FileTransaction:
    """One replacement of files.

    Args:
      area: a directory for staged files and the journal, on the file system
        of the files that are replaced.  It is made here, and must not exist.
      root: the directory that the paths are relative to.
    """

    def __init__(self, area: Path, root: Path):
        self._area = area
        self._root = root
        area.mkdir(parents=True)

    @property
    def staged(self) -> Path:
        """Where to put new contents, at their path."""
        return self._area / "new"

    def stage(self, path: str, content: bytes, executable: bool = False):
        """Writes new contents for `path`."""
        target = self.staged / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        if executable:
            target.chmod(target.stat().st_mode | 0o111)

    def begin(self, paths: Sequence[str], note: dict | None = None) -> None:
        """Writes the journal; from here on `roll_back` is possible.

        Args:
          paths: all files that will be replaced, added or removed.
          note: what the caller needs to undo what it does besides.
        """
        entries = []
        for number, path in enumerate(paths):
            target = self._root / path
            existed = os.path.lexists(target)
            if existed:
                keep(target, self._kept(number))
            entries.append(
                {
                    "path": path,
                    "existed": existed,
                    "new": _fingerprint(self.staged / path),
                    "new_parents": self._missing_parents(target),
                }
            )
        journal = {"root": str(self._root), "entries": entries, "note": note or {}}
        draft = self._area / "journal.draft"
        draft.write_text(json.dumps(journal), encoding="utf-8")
        os.replace(draft, self._area / "journal")
        self._entries = entries

    def replace(self, path: str) -> None:
        """Moves the staged contents of `path` to its place."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self.staged / path, target)

    def remove(self, path: str) -> None:
        """Removes `path`, and directories that are empty without it."""
        (self._root / path).unlink()
        for parent in Path(path).parents:
            try:
                if parent.name:
                    (self._root / parent).rmdir()
            except OSError:
                break

    def roll_back(self) -> None:
        """Restores all files as they were at `begin`."""
        _undo(self._area, self._root, self._entries)

    def complete(self) -> None:
        """Declares that nothing is to be undone any more."""
        (self._area / "journal").unlink()

    def close(self) -> None:
        """Removes the transaction's own files; its changes stay."""
        _forget(self._area)

    def _kept(self, number: int) -> Path:
        return self._area / "old" / str(number)

    def _missing_parents(self, target: Path) -> list[str]:
        return [
            str(parent)
            for parent in target.parents
            if self._root in parent.parents and not parent.exists()
        ]


class Leftover:
    """The unfinished transaction of a killed process.

    Attributes:
      note: what the caller of `begin` noted.
    """

    def __init__(self, area: Path, journal: dict):
        self._area = area
        self._root = Path(journal["root"])
        self._entries = journal["entries"]
        self.note = journal["note"]

    def edited_since(self) -> list[str]:
        """Paths that are neither as before nor as the transaction left them:
        somebody has worked on them since, and undoing would lose that."""
        edited = []
        for number, entry in enumerate(self._entries):
            target = self._root / entry["path"]
            kept = self._area / "old" / str(number)
            as_before = (
                _same_file(kept, target) if entry["existed"] else not os.path.lexists(target)
            )
            found = _fingerprint(target)
            if not as_before and found not in (None, entry["new"]):
                edited.append(entry["path"])
        return edited

    def undo(self) -> None:
        """Puts the files back and forgets the transaction."""
        _undo(self._area, self._root, self._entries)
        _forget(self._area)

    def forget(self) -> None:
        """Leaves the files as they are and forgets the transaction."""
        _forget(self._area)


def leftover(area: Path) -> Leftover | None:
    """The unfinished transaction in `area`, or None.

    What such a process had only staged is removed here.
    """
    try:
        journal = json.loads((area / "journal").read_text(encoding="utf-8"))
    except FileNotFoundError:
        _forget(area)
        return None
    return Leftover(area, journal)


def _forget(area: Path) -> None:
    (area / "journal").unlink(missing_ok=True)
    shutil.rmtree(area, ignore_errors=True)


def _undo(area: Path, root: Path, entries: list[dict]) -> None:
    for number, entry in enumerate(entries):
        target = root / entry["path"]
        kept = area / "old" / str(number)
        if not entry["existed"]:
            target.unlink(missing_ok=True)
        elif not _same_file(kept, target):
            target.parent.mkdir(parents=True, exist_ok=True)
            restored = area / "restored"
            restored.unlink(missing_ok=True)
            keep(kept, restored)
            os.replace(restored, target)
    for entry in entries:
        for parent in entry["new_parents"]:
            try:
                os.rmdir(parent)
            except OSError:
                break  # in use, or already gone


def keep(target: Path, kept: Path) -> None:
    """Gives a file a second name under which it outlives being replaced."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(target, kept, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        # Not every file system has hard links.
        shutil.copy2(target, kept, follow_symlinks=False)


def _same_file(one: Path, other: Path) -> bool:
    """Whether two names are one file, or copies with the same times."""
    try:
        return os.path.samestat(one.lstat(), other.lstat()) or (
            _fingerprint(one) == _fingerprint(other)
        )
    except FileNotFoundError:
        return False


def _fingerprint(path: Path) -> list[int] | None:
    """Size and modification time, or None where there is no file."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return [status.st_size, status.st_mtime_ns]
