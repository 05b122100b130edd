"""What k2_mac.run says when a program starts: the changes, and what does not change."""

from __future__ import annotations

import collections
import os
import re
import sys
from collections.abc import Iterator

from .hook import Hook, Result
from .names import NOTES

# How many places or kinds a line lists.
_SHOWN = 6
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n#]*)"
    r"|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)


def lines(hook: Hook, main: str) -> list[str]:
    """Returns the summary of the files that a program imports, directly or indirectly.

    The program has not started yet.  So the imports are read from the text of the files.

    Args:
      main: the path of the program's main file.
    """
    found = dict(_imported(hook, main))
    changed = {path: result for path, result in found.items() if result.code}
    kinds = sum((result.changed.kinds for result in changed.values()), collections.Counter())
    ans = []
    if changed:
        some = [f"{count} {kind}" for kind, count in kinds.most_common()]
        ans = [
            f"there is no CUDA, so {sum(kinds.values())} expressions in {_files(changed)} use mps,"
            f" in memory only: {_some(some)}",
            f"`python -m k2_mac.run --show {_shown(next(iter(changed)))}` prints the changes",
        ]
    for kind, text in NOTES.items():
        places = [
            f"{_shown(path)}:{note.line} {note.text}"
            for path, result in found.items()
            for note in result.changed.notes
            if note.kind == kind
        ]
        if places:
            ans.append(f"{text}: {_some(places)}")
    return ans


def _files(paths: dict) -> str:
    first = _shown(next(iter(paths)))
    others = len(paths) - 1
    return first if not others else f"{first} and {others} other file{'s' * (others > 1)}"


def _some(texts: list[str]) -> str:
    more = len(texts) - _SHOWN
    return ", ".join([*texts[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def _shown(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def _imported(hook: Hook, main: str) -> Iterator[tuple[str, Result]]:
    """Yields the paths of the files that the rules apply to, and the results of the rules."""
    folders = [folder for folder in sys.path if hook.owns_folder(folder or os.curdir)]
    waiting, seen = [main], {main}
    while waiting:
        path = waiting.pop(0)
        result = hook.result(path) if hook.owns(path) else None
        if result is None:
            continue
        yield path, result
        for imported in _imports(result.content.decode(errors="replace"), path, folders):
            # The same file may be reached by a symbolic link.
            if os.path.realpath(imported) not in seen:
                seen.add(os.path.realpath(imported))
                waiting.append(imported)


def _imports(text: str, path: str, folders: list[str]) -> Iterator[str]:
    """Yields the paths of the files that a file imports, if they exist."""
    # `import` has `modules` and `from` has the other two texts.  An empty text gives no file.
    for module, names, modules in _IMPORT.findall(text):
        for name in re.findall(r"[\w.]+", re.sub(r"\bas\s+\w+", "", modules)):
            yield from _module(name.split("."), folders)
        dots = len(module) - len(module.lstrip("."))
        start = folders
        if dots:
            folder = os.path.dirname(path)
            for _ in range(dots - 1):
                folder = os.path.dirname(folder)
            start = [folder]
        parts = [part for part in module.split(".") if part]
        yield from _module(parts, start)
        for name in re.findall(r"\w+", re.sub(r"\bas\s+\w+|#.*", "", names)):
            yield from _module([*parts, name], start)


def _module(parts: list[str], folders: list[str]) -> Iterator[str]:
    """Yields the files of a module and of its packages, in the first folder that has the module."""
    for folder in folders:
        found = []
        for number in range(1, len(parts) + 1):
            base = os.path.join(folder, *parts[:number])
            found += filter(os.path.isfile, (os.path.join(base, "__init__.py"), f"{base}.py"))
        if found:
            yield from found
            return
