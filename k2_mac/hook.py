"""Changes the modules of a program while Python imports them, see rules.py.

The hook stands in Python's loader of source files, so it also works for runpy, which runs main
programs, and for modules that a program loads from a path.  The changed code never gets into
__pycache__: other programs use the same files.

Processes that the program starts read the variable K2_MAC_RUN.  The file k2_mac_run.pth, which is
installed beside k2_mac, calls child() in each Python process that has this variable.  This module
imports neither torch nor k2, and the syntax rules only when a program needs them.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
import types
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from . import rules

VARIABLE = "K2_MAC_RUN"
# No rule applies to these packages, which know mps themselves.
NEVER = ("k2", "k2_mac", "torch")
_PATCHED = ("k2", "torch")
# typeguard compiles decorated functions again, from the text of the file.
_TYPEGUARD = "typeguard._decorators"
_LIBRARY = os.path.join(os.path.dirname(os.path.realpath(os.__file__)), "")
_INSTALLED = ("site-packages", "dist-packages")


class Result(NamedTuple):
    """What the rules made of a file."""

    content: bytes  # the file
    changed: rules.Changed
    code: types.CodeType | None  # the changed code; None if nothing changes


def _compiled(tree: ast.Module, source: str, path: str) -> types.CodeType:
    """Compiles a changed program.

    Raises:
      SyntaxError: the program itself does not compile.
      RuntimeError: only the changed program does not.
    """
    try:
        return compile(tree, path, "exec", dont_inherit=True)
    except (SyntaxError, TypeError, ValueError) as error:
        compile(source, path, "exec", dont_inherit=True)
        raise RuntimeError(
            f"k2_mac.run changed {path}, and the result does not compile: {error}; this is an"
            " error of k2_mac, please report it"
        ) from error


class Hook:
    """The changes of one process."""

    installed: Hook | None = None

    def __init__(self, roots: Iterable[str], in_place: bool = False):
        """
        Args:
          roots: the folders and files that are changed, without symbolic links.
          in_place: see rules.change().
        """
        self.roots = list(dict.fromkeys(roots))
        self.in_place = in_place
        self._results: dict[str, Result] = {}  # by path
        self._owned: dict[str, bool] = {}  # by folder
        self._sources: set[str] = set()  # the texts of changed files

    @classmethod
    def from_variable(cls) -> Hook:
        return cls(**json.loads(os.environ[VARIABLE]))

    def add(self, roots: Iterable[str]) -> None:
        """Adds roots, and tells the processes that this process starts."""
        self.roots = list(dict.fromkeys([*self.roots, *roots]))
        self._owned.clear()
        os.environ[VARIABLE] = json.dumps({"roots": self.roots, "in_place": self.in_place})

    def owns(self, path: str) -> bool:
        """Whether the rules apply to a file.

        A symbolic link to a file belongs to the folder of the link.
        """
        if not path.endswith(".py"):
            return False
        return self.owns_folder(os.path.dirname(path)) or os.path.realpath(path) in self.roots

    def owns_folder(self, folder: str) -> bool:
        """Whether the rules apply to the files of a folder.

        Installed packages inside a root, as in a virtual environment, do not belong to it.
        """
        if folder not in self._owned:
            self._owned[folder] = self._is_in_root(os.path.realpath(folder))
        return self._owned[folder]

    def _is_in_root(self, folder: str) -> bool:
        inside = os.path.join(folder, "")
        for root in self.roots:
            if inside.startswith(os.path.join(root, "")):
                below = inside[len(root) :].split(os.sep)
                if not any(name in below for name in _INSTALLED):
                    # A home folder may have Python's own library.
                    return root.startswith(_LIBRARY) or not inside.startswith(_LIBRARY)
        return False

    def result(self, path: str) -> Result | None:
        """Returns what the rules make of a file; None if Python cannot read the file.

        Raises:
          RuntimeError: the changed file does not compile, but the file itself does.
        """
        try:
            with open(path, "rb") as file:
                content = file.read()
            result = self._results.get(path)
            if result is None or result.content != content:
                from . import rules

                source = importlib.util.decode_source(content)
                changed = rules.change(source, self.in_place)
                code = None
                if changed.tree is not None:
                    self._sources.add(source)
                    code = _compiled(changed.tree, source, path)
                    changed.tree = None  # it is large
                result = self._results[path] = Result(content, changed, code)
            return result
        except (OSError, SyntaxError, ValueError):
            return None  # Python raises its own error when it imports or runs the file.

    def code(self, path: str) -> types.CodeType | None:
        """Returns the code of a file after the changes; None if nothing changes."""
        result = self.result(path) if self.owns(path) else None
        return result and result.code

    def tree(self, source: str) -> ast.Module:
        """Parses a text; if the text is that of a changed file, returns the changed tree."""
        if source in self._sources:
            from . import rules

            return rules.change(source, self.in_place).tree
        return ast.parse(source)

    def install(self) -> None:
        """Makes Python's loader of source files use this hook."""
        Hook.installed = self
        get_code = SourceFileLoader.get_code

        def changed_code(loader, name):
            if name.partition(".")[0] in NEVER:
                return get_code(loader, name)
            return self.code(loader.get_filename(name)) or get_code(loader, name)

        # A traceback leaves out the frames of the import system, which this frame is between.
        changed_code.__code__ = changed_code.__code__.replace(
            co_filename=get_code.__code__.co_filename
        )
        SourceFileLoader.get_code = changed_code
        sys.meta_path.insert(0, _Finder)
        self._hook_runpy()
        for name in (*_PATCHED, _TYPEGUARD):
            if name in sys.modules:
                _patch(name)

    def _hook_runpy(self) -> None:
        """Changes the main program that multiprocessing runs again in each spawned process."""
        import runpy

        from_file = runpy._get_code_from_file

        def main_code(*names):
            result = from_file(*names)
            code = self.code(os.path.abspath(os.fsdecode(names[-1])))
            if code is None:
                return result
            # Up to Python 3.11, the function also returns the path.
            return (code, *result[1:]) if isinstance(result, tuple) else code

        runpy._get_code_from_file = main_code


class _Finder:
    """Replaces functions of torch, k2 and typeguard when their import ends."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in (*_PATCHED, _TYPEGUARD):
            return None
        others = (finder for finder in sys.meta_path if finder is not cls)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module):
                execute(module)
                _patch(name)

            spec.loader.exec_module = executed
        return spec


def _patch(name: str) -> None:
    """Replaces functions of torch, k2 or typeguard."""
    if name == _TYPEGUARD:
        parser = types.ModuleType("ast")
        vars(parser).update(vars(ast), parse=Hook.installed.tree)
        sys.modules[name].ast = parser
        return
    from . import patched

    patched.install() if name == "torch" else patched.install_in_k2()


def child() -> None:
    """Installs the hook in a process that a changed program has started."""
    hook = Hook.from_variable()
    hook.install()
    if sys.orig_argv[-len(sys.argv) :] != sys.argv:
        return
    # Python itself reads the file of a main program.  So a main program that changes is started
    # again, by k2_mac.run.
    if hook.code(os.path.abspath(sys.argv[0])):
        options = words_before(sys.argv)
        os.execv(sys.executable, [sys.executable, *options, "-m", "k2_mac.run", *sys.argv])


def words_before(words: list[str]) -> list[str]:
    """Returns the words of Python's command line between `python` and the given last words."""
    return sys.orig_argv[1 : len(sys.orig_argv) - len(words)]
