"""patches/ as a whole: the series, its patch files and the new files beside them.

The order is in `patches/series` (series_file.py), the edits of k2's files are in
patch files (patch_text.py), and new files lie under patches/files at their place
in k2's tree.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from k2mps.core import errors, pins
from k2mps.series import patch_text, series_file


@dataclasses.dataclass(frozen=True)
class NewFile:
    """A file that a patch adds to k2's tree.

    Attributes:
      path: where it goes in k2's tree, with forward slashes.
      mode: FILE_MODE or EXECUTABLE_MODE.
      source: where it lies, under patches/files.
      digest: what the lock says of it.
    """

    path: str
    mode: str
    source: Path
    digest: str


@dataclasses.dataclass(frozen=True)
class Series:
    """patches/ as a whole.

    Attributes:
      patches: the patches, in order.
      files: the new files, by path in k2's tree.
      groups: the group of each patch by its name; empty where the order file
        has none.
      lock: what upstream.toml says of these bytes.
    """

    patches: tuple[patch_text.Patch, ...]
    files: dict[str, NewFile]
    groups: dict[str, str]
    lock: pins.Lock


def load(directory: Path) -> Series:
    """Reads patches/ and checks that it is sound.

    Raises:
      SeriesError: a file is missing, malformed or belongs to no patch.
      UnsafePathError: a path is one that a patch must not touch.
    """
    order = read(directory / "series")
    names = series_file.parse_order(order)
    groups = series_file.parse_groups(order)
    raw = {name: read(directory / name) for name in names}
    patches = tuple(patch_text.parse(name, raw[name]) for name in names)
    owned = owners(patches, groups)
    files = {path: read_new_file(directory / "files", path) for path in sorted(owned)}
    check_nothing_unowned(directory, set(names), set(owned))
    lock = pins.Lock(
        series=pins.sha256(order),
        patches={name: pins.sha256(raw[name]) for name in names},
        files={path: file.digest for path, file in files.items()},
    )
    return Series(patches, files, groups, lock)


def folded(paths: Iterable[str]) -> dict[str, str]:
    """Files, and the directories above them, by what is the same name where
    upper and lower case are one, as on a Mac."""
    found = {}
    for path in paths:
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            place = "/".join(parts[:end])
            found[_fold(place)] = place
    return found


def same_elsewhere(known: dict[str, str], path: str) -> str:
    """What is in the way of a new file where upper and lower case are one:
    a file or directory that is spelled otherwise; empty if nothing is.

    Args:
      known: what `folded` returned.
    """
    parts = path.split("/")
    for end in range(1, len(parts) + 1):
        place = "/".join(parts[:end])
        other = known.get(_fold(place), place)
        if other != place:
            return other
    return ""


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def read(path: Path) -> bytes:
    where = f"patches/{path.name}"
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise errors.UnsafePathError(
                f"{where} is not a regular file",
                why="a symbolic link could lead anywhere",
                next_command="put the file itself there",
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise errors.SeriesError(
            f"{where} does not exist",
            why="patches/series names it, or is itself missing",
            next_command="git status patches",
        ) from None


def owners(patches: Sequence[patch_text.Patch], groups: dict[str, str]) -> dict[str, str]:
    """Which patch adds each new file."""
    owned: dict[str, str] = {}
    for patch in patches:
        for edit in patch.edits:
            owner = owned.get(edit.path)
            if owner and not series_file.may_edit(groups, patch.name, owner):
                raise errors.SeriesError(
                    f"patches/{patch.name} edits {edit.path}, which {owned[edit.path]} adds",
                    why="a new file has one state in its group: the one under patches/files",
                    next_command=f"edit patches/files/{edit.path} and take it"
                    f" out of patches/{patch.name}, then k2mps lock",
                )
        for path in patch.new_files:
            if path in owned:
                raise errors.SeriesError(
                    f"patches/files/{path} belongs to both {owned[path]} and {patch.name}",
                    next_command="take it out of New-files of one, then k2mps lock",
                )
            owned[path] = patch.name
    return owned


def read_new_file(files: Path, path: str) -> NewFile:
    target = files
    for part in path.split("/"):
        target = target / part
        if target.is_symlink():
            raise errors.UnsafePathError(
                f"patches/files/{path} is, or goes through, a symbolic link",
                why="a symbolic link could lead anywhere",
                next_command="put the file itself there",
            )
    try:
        executable = bool(target.stat().st_mode & stat.S_IXUSR)
        return NewFile(
            path,
            patch_text.EXECUTABLE_MODE if executable else patch_text.FILE_MODE,
            target,
            pins.digest(target.read_bytes(), executable),
        )
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise errors.SeriesError(
            f"patches/files/{path} does not exist",
            why="a patch names it under New-files",
            next_command="git status patches; or take it out of New-files, then k2mps lock",
        ) from None


def check_nothing_unowned(directory: Path, names: set[str], owned: set[str]) -> None:
    """Refuses what lies in patches/ but would silently not be applied."""
    unlisted = sorted(
        entry.name
        for entry in directory.iterdir()
        if entry.name not in names
        and entry.name not in ("series", "files")
        and not entry.name.startswith(".")
    )
    if unlisted:
        raise errors.SeriesError(
            f"patches/{unlisted[0]} is not in patches/series",
            next_command="add its name to patches/series or delete the file",
        )
    for folder, _, entries in os.walk(directory / "files"):
        for entry in entries:
            path = Path(folder, entry).relative_to(directory / "files")
            if path.as_posix() not in owned and entry != ".DS_Store":
                raise errors.SeriesError(
                    f"patches/files/{path.as_posix()} belongs to no patch",
                    next_command="name it under New-files of the patch that"
                    " adds it, then k2mps lock; or delete it",
                )
