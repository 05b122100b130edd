"""Finds patches that need a later patch, and new files with a wrong suffix.

Each commit of the series must build, and then `import k2` must work, without the later commits.  So
a new file, or a line that a patch adds, must not name one of these things if only a later patch has
it:

- a header that C++ code includes;
- a Python module that Python code imports, or names as `k2.mps.x`;
- a CMake file or a source file that CMake code names;
- a function of `_k2` that Python code calls and C++ code defines.

If a new source file includes a header of k2's core that needs nvcc, the file must not be a `.cc`.
It must be a `.cu`, which nvcc compiles in a build with CUDA; or Objective-C++, which a build with
CUDA leaves out.
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
# The folder in which k2_use_mps() is called.  The paths of sources in cmake/mps.cmake are relative
# to this folder.
_SOURCES = "k2/csrc"
_INCLUDE = re.compile(r'\s*#\s*(?:include|import)\s+"([^"]+)"')
_CMAKE_INCLUDE = re.compile(r"\binclude\(\s*([\w/.-]+)\s*[)\s]")
_CMAKE_FILE = re.compile(r"[\w./-]+\.(?:cc|cu|mm|metal|cmake)\b")
_DEFINES = re.compile(r'\bdef\(\s*"(\w+)"')
_TEXT_OR_COMMENT = re.compile(r'"[^"]*"|\'[^\']*\'|#.*')
_FROM = re.compile(r"\s*from\s+([\w.]+)\s+import\s+(.*)")
_DOTTED = re.compile(r"(?<![\w.])(_?k2(?:\.\w+)+)")
# The headers of k2's core that need no nvcc, even in a build with CUDA.
_PLAIN = ("k2/csrc/log.h", "k2/csrc/nvtx.h", "k2/csrc/version.h")


class Text(NamedTuple):
    """The lines that a patch adds to a file of k2."""

    path: str  # the file of k2, in k2's tree
    place: str  # the path, in the project, of the file under patches/ that has the lines
    lines: Sequence[tuple[int, str]]  # (number, text); the numbers count the lines of `place`


class Finding(NamedTuple):
    """A fault that a check has found."""

    path: str  # the file's path in the project
    line: int  # the number of the line in the file, from 1
    check: str  # the name of the check
    message: str  # what is wrong

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message} [{self.check}]"


def texts(patch: Patch, files: Mapping[str, bytes]) -> Iterator[Text]:
    """Yields the lines that a patch adds, first those of each new file, then those of each hunk.

    Args:
      files: the contents of the series' new files, by path in k2's tree.
    """
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
    """Yields a finding for each name in a patch that only a later patch provides.

    Args:
      files: the contents of the series' new files, by path in k2's tree.
    """
    added = [(at, text) for at, patch in enumerate(patches) for text in texts(patch, files)]
    # The number of the patch that provides a name.  A name is a path, a module such as `k2.mps.x`,
    # or a function such as `_k2.f`.
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
    """Yields a finding for each new `.cc` file that includes a header which needs nvcc.

    In a build with CUDA, k2 compiles a `.cc` file without nvcc.
    """
    for path in files:
        included = _included(_lines(files[path])) if path.endswith(".cc") else ()
        for line, name in included:
            header = _core(name, files, set())
            if header:
                why = "needs nvcc in a build with CUDA; name the file .cu"
                what = f"it includes {header}, which {why}"
                yield Finding(f"patches/files/{path}", line, "cuda", what)
                break


def _core(name: str, files: Mapping[str, bytes], seen: set[str]) -> str | None:
    """Returns the first header of k2's core that the header `name` includes, directly or not.

    The result can be `name` itself.  Headers in `_PLAIN` do not count.  Returns None if there is no
    such header.

    Args:
      seen: the headers that have been searched; this function adds to it.
    """
    if name in seen or name in _PLAIN or not name.startswith("k2/csrc/"):
        return None
    seen.add(name)
    if name not in files:
        return name
    lacking = (_core(other, files, seen) for _, other in _included(_lines(files[name])))
    return next(filter(None, lacking), None)


def _included(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        match = _INCLUDE.match(line)
        if match:
            yield number, match[1]


def _lines(content: bytes) -> list[tuple[int, str]]:
    return list(enumerate(content.decode("utf-8", "replace").split("\n"), start=1))


def _module(path: str) -> str:
    """Returns the name by which Python imports the file `path`."""
    name = path.removeprefix(_PACKAGES).removesuffix(".py").removesuffix("/__init__")
    return name.replace("/", ".")


def _names(text: Text) -> Iterator[tuple[int, str]]:
    """Yields (line number, name) for each path, module and function that a text names."""
    if text.path.endswith(_CXX):
        yield from _included(text.lines)
    elif text.path.endswith(_CMAKE):
        folder = posixpath.dirname(text.path)
        for number, line in text.lines:
            line = line.partition("#")[0]
            for name in _CMAKE_INCLUDE.findall(line):
                yield number, f"cmake/{name}.cmake"
            for name in _CMAKE_FILE.findall(line):
                # In ${PROJECT_SOURCE_DIR}/cmake/x.cmake, the pattern matches /cmake/x.cmake.
                yield number, name.lstrip("/")
                yield number, posixpath.normpath(f"{folder}/{name}")
                yield number, posixpath.normpath(f"{_SOURCES}/{name}")
    elif text.path.endswith(".py"):
        for number, line in text.lines:
            yield from ((number, name) for name in _python(line, text.path))


def _python(line: str, path: str) -> Iterator[str]:
    """Yields the modules and functions that a line of the Python file `path` names."""
    code = _TEXT_OR_COMMENT.sub("", line)
    dotted = _DOTTED.findall(code)
    match = _FROM.match(code)
    if match:
        # resolve_name() raises an error if a relative import leaves the top package.
        with contextlib.suppress(ImportError):
            module = importlib.util.resolve_name(match[1], _module(posixpath.dirname(path)))
            dotted += [module, *(f"{module}.{name}" for name in re.findall(r"\w+", match[2]))]
    for name in dotted:
        parts = name.split(".")
        yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))
