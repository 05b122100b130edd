"""patches/ as a whole.

`patches/series` has the order (series_file.py), patch files have the edits of
k2's files (patch_text.py), and patches/files has new files at their place in k2's tree.
"""

import dataclasses
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from k2mps.core import errors, pins
from k2mps.core.objects import File
from k2mps.series import patch_text, series_file


@dataclasses.dataclass(frozen=True)
class Series:
    """patches/ as a whole."""

    patches: tuple[patch_text.Patch, ...]  # the patches, in order
    files: dict[str, File]  # the new files, by path in k2's tree
    # The group of each patch by its name; empty where the order file has none.
    groups: dict[str, str]
    lock: pins.Lock  # the lock of these files
    complete: bool = True  # whether the new files of all patches are known

    def new_lines(self, patch: patch_text.Patch) -> int:
        return sum(len(self.files[path].content.splitlines()) for path in patch.new_files)

    def named(self, name: str) -> patch_text.Patch:
        """The patch of a name, which may lack ".patch"."""
        for patch in self.patches:
            if name in (patch.name, patch.name.removesuffix(".patch")):
                return patch
        raise errors.K2mpsError(
            f"there is no patch {name}",
            why=f"the patches are {', '.join(patch.name for patch in self.patches)}",
            next_command="run the same command again with one of these",
        )


def load(directory: Path) -> Series:
    """Reads patches/ and checks that it is sound.

    Raises:
      SeriesError: a file is missing, malformed or belongs to no patch.
      UnsafePathError: a path is one that a patch must not touch.
    """
    found, problems = examine(directory)
    for _, error in problems:
        raise error
    return found


def examine(directory: Path) -> tuple[Series, list[tuple[str, Exception]]]:
    """Reads as much of patches/ as can be read.

    Returns:
      The series; and each error with the file that it is about.
    """
    problems: list[tuple[str, Exception]] = []

    def attempt(place: str, function: Callable, *args):
        try:
            return function(*args)
        except (errors.SeriesError, OSError) as error:
            problems.append((f"patches/{place}", error))
            return None

    order = attempt("series", read, directory / "series") or b""
    names = attempt("series", series_file.parse_order, order)
    if names is None:
        lines = map(str.strip, order.decode("utf-8", "replace").split("\n"))
        names = list(dict.fromkeys(filter(series_file.PATCH_NAME.fullmatch, lines)))
    groups = attempt("series", series_file.parse_groups, order) or {}
    raw = {name: attempt(name, read, directory / name) for name in names}
    raw = {name: content for name, content in raw.items() if content is not None}
    parsed = [attempt(name, patch_text.parse, name, content) for name, content in raw.items()]
    patches = tuple(filter(None, parsed))
    owned = attempt("series", owners, patches, groups)
    files = {}
    for path in sorted(owned or ()):
        file = attempt(f"files/{path}", read_new_file, directory / "files", path)
        if file:
            files[path] = file
    # The new files of an unreadable patch are unknown.
    complete = owned is not None and len(patches) == len(names)
    if complete:
        attempt("series", check_nothing_unowned, directory, set(names), set(owned))
    lock = pins.Lock(
        series=pins.sha256(order),
        patches={name: pins.sha256(content) for name, content in raw.items()},
        files={path: file.digest for path, file in files.items()},
    )
    return Series(patches, files, groups, lock, complete), problems


def folded(paths: Iterable[str]) -> dict[str, str]:
    """Files and the directories above them, by their names without case, which a Mac ignores."""
    found = {}
    for path in paths:
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            place = "/".join(parts[:end])
            found[_fold(place)] = place
    return found


def same_elsewhere(known: dict[str, str], path: str) -> str:
    """The file or directory that a new file collides with where case is ignored; empty if there is
    none."""
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


def read_new_file(files: Path, path: str) -> File:
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
        return File(target.read_bytes(), bool(target.stat().st_mode & stat.S_IXUSR))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise errors.SeriesError(
            f"patches/files/{path} does not exist",
            why="a patch names it under New-files",
            next_command="git status patches; or take it out of New-files, then k2mps lock",
        ) from None


def check_nothing_unowned(directory: Path, names: set[str], owned: set[str]) -> None:
    """Refuses files in patches/ that no patch applies."""
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
