"""The order that the texts of the patches ask for.

Each commit of the series must build and import by itself.  A new file, or a line that a patch adds
to an upstream file, may thus name only what upstream, the same patch or an earlier one has:

- a header that it includes, a Python module that it imports or reaches as `k2.mps.x`, a CMake file
  that it includes, a source that it lists;
- a function of `_k2` that Python calls, which C++ must have defined.

A file that includes a header of k2's core must be a `.cu`, for which a CUDA build takes nvcc, or
Objective-C++, which no CUDA build has.
"""

import contextlib
import importlib.util
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from k2mps.series.patch_text import Patch

_CXX = (".h", ".cc", ".cu", ".mm", ".metal")
_CMAKE = (".cmake", "CMakeLists.txt")
_PACKAGES = "k2/python/"
# The paths in cmake/mps.cmake are relative to the folder that includes it.
_SOURCES = "k2/csrc"
_INCLUDE = re.compile(r'\s*#\s*(?:include|import)\s+"([^"]+)"')
_CMAKE_INCLUDE = re.compile(r"\binclude\(\s*([\w/.-]+)\s*[)\s]")
_CMAKE_FILE = re.compile(r"[\w./-]+\.(?:cc|cu|mm|metal|cmake)\b")
_DEFINES = re.compile(r'\bdef\(\s*"(\w+)"')
_TEXT_OR_COMMENT = re.compile(r'"[^"]*"|\'[^\']*\'|#.*')
_FROM = re.compile(r"\s*from\s+([\w.]+)\s+import\s+(.*)")
_DOTTED = re.compile(r"(?<![\w.])(_?k2(?:\.\w+)+)")
# Headers of k2's core that a compiler without CUDA accepts.
_PLAIN = ("k2/csrc/log.h", "k2/csrc/nvtx.h", "k2/csrc/version.h")


class Text(NamedTuple):
    """Lines that a patch adds to a file."""

    path: str  # the file of k2's tree
    place: str  # the file of the project that has the lines
    lines: Sequence[tuple[int, str]]  # the lines, each with its number in that file, from 1


class Finding(NamedTuple):
    """One thing to correct."""

    path: str  # the file, relative to the project
    line: int  # its line, from 1
    check: str  # the name of the check
    message: str  # what is wrong

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message} [{self.check}]"


def texts(patch: Patch, files: Mapping[str, bytes]) -> Iterator[Text]:
    """The additions of a patch: its new files, and its lines in other files."""
    for path in patch.new_files:
        if path in files:
            yield Text(path, f"patches/files/{path}", _lines(files[path]))
    for hunk in patch.hunks:
        start = patch.diff_line + hunk.line
        added = [
            (number, line[1:].decode("utf-8", "replace"))
            for number, line in enumerate(hunk.body, start)
            if line[:1] == b"+"
        ]
        yield Text(hunk.path, f"patches/{patch.name}", added)


def lacks(patches: Sequence[Patch], files: Mapping[str, bytes]) -> Iterator[Finding]:
    """Names in patches that only later patches provide; `files` are the new files' contents."""
    added = [(at, text) for at, patch in enumerate(patches) for text in texts(patch, files)]
    # By path, by module as `k2.mps.x`, and by function as `_k2.f`.
    owners: dict[str, int] = {}
    for at, patch in enumerate(patches):
        for path in patch.new_files:
            owners[path] = owners[_module(path)] = at
    for at, text in added:
        if text.path.endswith(_CXX):
            whole = "\n".join(line for _, line in text.lines)
            for name in _DEFINES.findall(whole):
                owners.setdefault(f"_k2.{name}", at)
    for at, text in added:
        for line, name in dict.fromkeys(_names(text)):
            owner = owners.get(name, at)
            if owner > at:
                later = f"comes with {patches[owner].name}, which is later than {patches[at].name}"
                yield Finding(text.place, line, "order", f"{name} {later}")


def misnamed(files: Mapping[str, bytes]) -> Iterator[Finding]:
    """New `.cc` files with a header that needs nvcc: k2's CUDA build would compile them without."""
    for path in files:
        included = _included(_lines(files[path])) if path.endswith(".cc") else ()
        for line, name in included:
            header = _core(name, files, set())
            if header:
                why = "nvcc compiles where there is CUDA: k2 calls such a file .cu"
                what = f"it includes {header}, which {why}"
                yield Finding(f"patches/files/{path}", line, "cuda", what)
                break


def _core(name: str, files: Mapping[str, bytes], seen: set[str]) -> str | None:
    """The header of k2's core that a header is or includes."""
    if name in seen or name in _PLAIN or not name.startswith("k2/csrc/"):
        return None
    seen.add(name)
    if name not in files:
        return name
    found = (_core(other, files, seen) for _, other in _included(_lines(files[name])))
    return next(filter(None, found), None)


def _included(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        match = _INCLUDE.match(line)
        if match:
            yield number, match[1]


def _lines(content: bytes) -> list[tuple[int, str]]:
    return list(enumerate(content.decode("utf-8", "replace").split("\n"), start=1))


def _module(path: str) -> str:
    """The name by which Python imports a file, if it can."""
    name = path.removeprefix(_PACKAGES).removesuffix(".py").removesuffix("/__init__")
    return name.replace("/", ".")


def _names(text: Text) -> Iterator[tuple[int, str]]:
    """The paths, modules and functions that a text names, as `lacks` has them, with the lines."""
    if text.path.endswith(_CXX):
        yield from _included(text.lines)
    elif text.path.endswith(_CMAKE):
        folder = posixpath.dirname(text.path)
        for number, line in text.lines:
            line = line.partition("#")[0]
            for name in _CMAKE_INCLUDE.findall(line):
                yield number, f"cmake/{name}.cmake"
            for name in _CMAKE_FILE.findall(line):
                # ${PROJECT_SOURCE_DIR}/cmake/x.cmake leaves a leading slash.
                yield number, name.lstrip("/")
                yield number, posixpath.normpath(f"{folder}/{name}")
                yield number, posixpath.normpath(f"{_SOURCES}/{name}")
    elif text.path.endswith(".py"):
        for number, line in text.lines:
            yield from ((number, name) for name in _python(line, text.path))


def _python(line: str, path: str) -> Iterator[str]:
    """The modules and functions that a line of a Python file names."""
    code = _TEXT_OR_COMMENT.sub("", line)
    dotted = _DOTTED.findall(code)
    match = _FROM.match(code)
    if match:
        # A text may have more dots than there are folders.
        with contextlib.suppress(ImportError):
            module = importlib.util.resolve_name(match[1], _module(posixpath.dirname(path)))
            dotted += [module, *(f"{module}.{name}" for name in re.findall(r"\w+", match[2]))]
    for name in dotted:
        parts = name.split(".")
        yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))
