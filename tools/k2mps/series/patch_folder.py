"""Reads all of patches/.

`patches/series` has the order of the patches, see series_file.py.  Patch files have the edits of
k2's files, see patch_text.py.  `patches/files` has the new files, each at its path in k2's tree.
"""

import os
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors, objects
from k2mps.core.objects import File, folders_of
from k2mps.series import conflict_markers, patch_text, series_file


class Series(NamedTuple):
    """The contents of patches/."""

    patches: tuple[patch_text.Patch, ...]  # the patches, in order
    files: dict[str, File]  # the new files, by path in k2's tree
    groups: dict[str, str]  # the group of each patch, by its name; empty if there are no groups


def index(names: Sequence[str], name: str) -> int:
    """Returns the index of a patch in `names`.

    Args:
      name: the patch's name, perhaps without ".patch"; or a path to its file in a folder `patches`.

    Raises:
      K2mpsError: there is no such patch.
    """
    *folders, last = name.split("/")
    plain = last if folders[-1:] == ["patches"] else name
    for file_name in (plain, f"{plain}.patch"):
        if file_name in names:
            return names.index(file_name)
    raise errors.K2mpsError(
        f"there is no patch {name}",
        why=f"the patches are {', '.join(names)}",
        next_command="run the same command again with one of these; if patches/ has the patch since"
        " the last apply, first k2mps apply",
    )


def load(directory: Path) -> Series:
    """Reads patches/.

    Raises:
      SeriesError: a file is missing or malformed, or belongs to no patch.
    """
    series, problems = examine(directory)
    if problems:
        _, error = problems[0]
        raise error
    return series


def examine(directory: Path) -> tuple[Series, list[tuple[str, Exception]]]:
    """Reads as much of patches/ as possible.

    Returns:
      The series; and (path, error) for each file that cannot be read or is wrong.
    """
    problems: list[tuple[str, Exception]] = []

    def attempt(path: str, function: Callable, *args):
        """Returns the result of a function; None if it raises an error, which is a problem of
        `path`."""
        try:
            return function(*args)
        except (errors.SeriesError, OSError) as error:
            problems.append((f"patches/{path}", error))
            return None

    def contents(paths: Iterable[str]) -> dict[str, File]:
        """Returns those of the files that can be read, by path."""
        readable = {path: attempt(path, read, directory, path) for path in paths}
        return {path: file for path, file in readable.items() if file}

    order = contents(["series"])
    order_read = attempt("series", series_file.parse, order["series"].content) if order else None
    if not order_read:
        return Series((), {}, {}), problems
    names, groups = order_read
    raw = {name: file.content for name, file in contents(names).items()}
    parsed = [attempt(name, _parse, name, content) for name, content in raw.items()]
    patches = tuple(filter(None, parsed))
    owned = attempt("series", owners, patches, groups)
    new = contents(f"files/{path}" for path in sorted(owned or ()))
    for path, file in new.items():
        attempt(path, _check_merged, path, file.content)
    # If a patch cannot be read, its new files are unknown, and would seem to belong to no patch.
    if owned is not None and len(patches) == len(names):
        attempt("series", check_nothing_unowned, directory, names, owned)
    files = {path.removeprefix("files/"): file for path, file in new.items()}
    return Series(patches, files, groups), problems


def _parse(name: str, content: bytes) -> patch_text.Patch:
    """Parses a patch file; raises `SeriesError` if it has conflict markers or is malformed."""
    _check_merged(name, content)
    return patch_text.parse(name, content)


def _check_merged(path: str, content: bytes) -> None:
    """Raises `SeriesError` if a file has conflict markers of git."""
    markers = list(conflict_markers.MARKER.finditer(content))
    begins = [marker.start() for marker in markers if marker[1] == conflict_markers.BEGIN]
    ends = [marker.start() for marker in markers if marker[1] == conflict_markers.END]
    if begins and ends and begins[0] < ends[-1]:
        line = content.count(b"\n", 0, begins[0]) + 1
        raise errors.SeriesError(
            f"patches/{path}:{line}: a merge conflict",
            why="git merge, rebase or stash has left it there",
            next_command=f"resolve it, then git add patches/{path}",
        )


def read(directory: Path, path: str) -> File:
    """Reads the file of patches/ at this path; raises `SeriesError` if there is none."""
    target = os.path.join(directory, path)
    places = [directory, *(os.path.join(directory, folder) for folder in folders_of(path)), target]
    for place in places:
        if os.path.islink(place):
            raise errors.SeriesError(
                f"patches/{path} is, or goes through, a symbolic link",
                why="a symbolic link could lead anywhere",
                next_command="replace the link by the file",
            )
    if not os.path.isfile(target):
        raise errors.SeriesError(
            f"patches/{path} does not exist",
            why="patches/series, or New-files of a patch, names this file; or the tool needs it",
            next_command="git status patches; or delete the line that names it",
        )
    return objects.read(target)


def owners(patches: Iterable[patch_text.Patch], groups: dict[str, str]) -> dict[str, str]:
    """Returns {path of a new file, in k2's tree: the name of the patch that adds the file}.

    Raises:
      SeriesError: two patches add a file, or two new files have names that differ only in case, or
        a patch edits a new file of its own group.
    """
    owned: dict[str, str] = {}
    spellings: dict[str, str] = {}
    for patch in patches:
        for path in patch.edited:
            owner = owned.get(path)
            if owner and not series_file.may_edit(groups, patch.name, owner):
                raise errors.SeriesError(
                    f"patches/{patch.name} edits {path}, which {owner} adds",
                    why="only a patch of a later group, or a patch -at-head of the same group, may"
                    " edit a new file",
                    next_command=f"edit patches/files/{path} and remove the edit"
                    f" from patches/{patch.name}",
                )
        for path in patch.new_files:
            if path in owned:
                raise errors.SeriesError(
                    f"patches/files/{path} belongs to both {owned[path]} and {patch.name}",
                    next_command=f"delete {path} under New-files of one of them",
                )
            owned[path] = patch.name
            other = spellings.setdefault(folded(path), path)
            if other != path:
                raise errors.SeriesError(
                    f"patches/files/{path} of {patch.name} is patches/files/{other} of"
                    f" {owned[other]} in other letters",
                    why="on most Macs, names that differ only in case are one file",
                    next_command="give one of these files another name",
                )
    return owned


def folded(path: str) -> str:
    """Returns the same text for paths that are one file on a Mac."""
    return unicodedata.normalize("NFC", path).casefold()


def paths_of(directory: Path) -> list[str]:
    """Returns the paths of all files of patches/, relative to patches/.

    Hidden files directly in patches/ are left out, and so are the files of `patch_text.STRAY`.
    """
    base = os.path.join(directory, "")
    paths = []
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name).removeprefix(base)
            if not patch_text.STRAY.fullmatch(name) and not path.startswith("."):
                paths.append(path)
    return sorted(paths)


def check_nothing_unowned(directory: Path, names: Collection[str], owned: Iterable[str]) -> None:
    """Raises `SeriesError` if patches/ has a file that belongs to no patch."""
    expected = {"series", *names, *(f"files/{path}" for path in owned)}
    for path in paths_of(directory):
        if path not in expected:
            raise errors.SeriesError(
                f"patches/{path} belongs to no patch",
                why="neither patches/series nor New-files of a patch names it",
                next_command="name it there, or move it out of patches/",
            )
