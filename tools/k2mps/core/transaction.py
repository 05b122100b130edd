"""Replacing a set of files, all or none.

First the new contents are staged, where a full disk harms nothing.  Then hard links keep the old
files, a journal names all files, and the new files move to their places.  An error or a signal
restores the old files, with their times.  A killed process leaves the journal, from which the next
run does the same (`leftover`).
"""

import contextlib
import functools
import json
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


class FileTransaction:
    """One replacement of files.

    Args:
      area: a directory for staged files and the journal, on the file system of the files that are
        replaced.  Without a journal, the directory must not exist, and is made.
      root: the directory that the paths are relative to.
      journal: what a killed process has left.
    Attributes:
      note: what the caller of `begin` noted.
    """

    def __init__(self, area: Path, root: Path, journal: dict | None = None):
        self._area = area
        self._root = root
        self._entries: list[dict] = journal["entries"] if journal else []
        self.note: dict = journal["note"] if journal else {}
        if not journal:
            area.mkdir(parents=True)

    @property
    def staged(self) -> Path:
        """The folder of new contents, each at its path."""
        return self._area / "new"

    @property
    def old(self) -> Path:
        """The folder of the old files, by their numbers in what `begin` got."""
        return self._area / "old"

    def stage(self, path: str, content: bytes, executable: bool = False):
        """Writes new contents for `path`."""
        target = self.staged / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        if executable:
            target.chmod(target.stat().st_mode | 0o111)

    def begin(self, paths: Sequence[str], note: dict) -> None:
        """Writes the journal of all files that will be replaced, added or removed, with what the
        caller needs to undo its other changes; from here on `roll_back` is possible."""
        entries = []
        missing = functools.cache(self._missing_parents)
        for number, path in enumerate(paths):
            target = self._root / path
            existed = is_file(target)
            if existed:
                keep(target, self._kept(number))
            entries.append(
                {
                    "path": path,
                    "existed": existed,
                    "new": _fingerprint(self.staged / path),
                    "new_parents": missing(os.path.dirname(path)),
                }
            )
        journal = {"root": str(self._root), "entries": entries, "note": note}
        rewrite(self._area / "journal", json.dumps(journal))
        self._entries = entries

    def swap(
        self, changed: Iterable[str], removed: Iterable[str], check: Callable[[], None]
    ) -> None:
        """Changes the files; `check` raises what should stop that.

        Removals go first: a new file may stand where a folder was, or in a folder where a file was.
        """
        for path in removed:
            check()
            self.remove(path)
        for path in changed:
            check()
            self.replace(path)
        check()

    def replace(self, path: str) -> None:
        """Moves the staged contents of `path` to its place."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self.staged / path, target)

    def remove(self, path: str) -> None:
        """Removes `path`, and directories that are empty without it."""
        (self._root / path).unlink()
        with contextlib.suppress(OSError):
            for parent in list(Path(path).parents)[:-1]:
                (self._root / parent).rmdir()

    def roll_back(self) -> None:
        """Restores all files as they were at `begin`."""
        restored = self._area / "restored"
        for entry in self._entries:
            target = self._root / entry["path"]
            if not entry["existed"] and is_file(target):
                target.unlink()
        for entry in self._entries:
            with contextlib.suppress(OSError):  # in use, or already gone
                for parent in entry["new_parents"]:
                    os.rmdir(parent)
        for number, entry in enumerate(self._entries):
            target = self._root / entry["path"]
            if entry["existed"] and not _same_file(self._kept(number), target):
                target.parent.mkdir(parents=True, exist_ok=True)
                restored.unlink(missing_ok=True)
                keep(self._kept(number), restored)
                os.replace(restored, target)

    def undo(self) -> None:
        """Restores all files, and removes the transaction's own."""
        self.roll_back()
        self.close()

    def complete(self) -> None:
        """Declares that nothing is to be undone any more."""
        (self._area / "journal").unlink(missing_ok=True)

    def close(self) -> None:
        """Removes the transaction's own files; its changes stay."""
        self.complete()
        _remove(self._area)

    def _kept(self, number: int) -> Path:
        return self.old / str(number)

    def _missing_parents(self, folder: str) -> list[str]:
        """The directories of `folder` that do not exist, the deepest first."""
        missing = []
        while folder and not os.path.isdir(self._root / folder):
            missing.append(str(self._root / folder))
            folder = os.path.dirname(folder)
        return missing


def leftover(area: Path) -> FileTransaction | None:
    """The transaction that a killed process has left in `area`, or None.

    Removes contents that were only staged.
    """
    try:
        journal = json.loads((area / "journal").read_text(encoding="utf-8"))
    except FileNotFoundError:
        _remove(area)
        return None
    return FileTransaction(area, Path(journal["root"]), journal)


def is_file(path: Path) -> bool:
    """Whether a file, or a link to anything, has this name."""
    status = _status(path)
    return status is not None and not stat.S_ISDIR(status.st_mode)


def rewrite(path: Path, text: str) -> None:
    """Writes a file; a kill leaves the old text or the new one."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def keep(target: Path, kept: Path) -> None:
    """Gives a file a second name, under which it stays when it is replaced."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(target, kept, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        # Not every file system has hard links.
        import shutil

        shutil.copy2(target, kept, follow_symlinks=False)


def _remove(area: Path) -> None:
    import shutil  # It takes time to import, and `k2mps status` does without.

    shutil.rmtree(area, ignore_errors=True)


def _same_file(one: Path, other: Path) -> bool:
    """Whether two names are one file, or copies with the same times."""
    try:
        return os.path.samestat(one.lstat(), other.lstat()) or (
            _fingerprint(one) == _fingerprint(other)
        )
    except (FileNotFoundError, NotADirectoryError):
        return False


def _fingerprint(path: Path) -> list[int] | None:
    """Size and modification time, or None where there is no file."""
    status = _status(path)
    return [status.st_size, status.st_mtime_ns] if status else None


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
