"""Runs a program that was written for CUDA on mps, as it is.

    python -m k2_mac.run zipformer/train.py --world-size 1 ...
    python -m k2_mac.run -m package.module ...
    python -m k2_mac.run --show zipformer/train.py

The program's own modules change in memory while Python imports them: calls of torch.cuda become
calls of k2_mac.gpu.  No file changes.  With CUDA, nothing changes at all.
"""

import argparse
import difflib
import importlib.util
import os
import runpy
import subprocess
import sys
import types
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader

from k2_mac.hook import NEVER, VARIABLE, Hook, words_before

_MODULE = "k2_mac.run"
# The environment variable that tells a program's processes that the summary has been printed.
_SUMMARY_PRINTED = "K2_MAC_RUN_TOLD"


def main(argv: list[str]) -> int | None:
    """Runs this command; `argv` is its command line without the program's name."""
    own, program = _split(argv)
    options = _parser().parse_args(own)
    if options.show:
        return _show(options.show, options.in_place)
    if program in ([], ["-m"]):
        _parser().error("which program, or which module?")
    if VARIABLE not in os.environ and has_cuda():
        os.execv(sys.executable, [sys.executable, *_options_of_python(argv), *program])
    _run(program, options)
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {_MODULE}",
        usage="%(prog)s [OPTION...] PROGRAM [ARGUMENT...]\n"
        "       %(prog)s [OPTION...] -m MODULE [ARGUMENT...]\n"
        "       %(prog)s [--in-place] --show PATH...",
        description="Run a program that was written for CUDA on mps, as it is: its own modules"
        " change in memory. With CUDA, nothing changes.",
    )
    parser.add_argument(
        "--show",
        metavar="PATH",
        nargs="+",
        help="print the changes of files, or of all programs in folders, as a diff, and run"
        " nothing; `patch -p0` reads the diff",
    )
    parser.add_argument(
        "--also",
        metavar="PACKAGE",
        action="append",
        default=[],
        help="change this installed package, too; for several packages, repeat the option",
    )
    parser.add_argument(
        "--in-place",
        action="store_true",
        help="let rnnt_loss_pruned overwrite the joiner's logits by their gradient; only for"
        " programs whose other code does not use the logits afterwards",
    )
    parser.add_argument("--quiet", action="store_true", help="print no summary of the changes")
    return parser


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Returns the arguments of this command, and the program with its arguments."""
    at = 0
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-m":
        if argv[at] == "--show" or argv[at].startswith("--show="):
            return argv, []
        at += 2 if argv[at] == "--also" else 1
    return argv[:at], argv[at:]


def _options_of_python(argv: list[str]) -> list[str]:
    """Returns the options of Python itself: for `python -X dev -m k2_mac.run x.py 1`, -X and dev.

    Args:
      argv: the words after "k2_mac.run", such as x.py and 1.
    """
    *options, last = words_before(argv)
    if last == _MODULE:
        *options, last = options
    # What is left of `-mk2_mac.run`, or of a group such as `-OBm`.
    last = last.removesuffix(_MODULE).removesuffix("m")
    return options if last == "-" or not last.startswith("-") else [*options, last]


def has_cuda() -> bool:
    """Returns whether torch can use CUDA.

    A child process asks torch.  The question starts CUDA, and a process that has started CUDA
    cannot fork any more.
    """
    found = importlib.util.find_spec("torch")
    if found is None or not found.origin:
        return False
    version = runpy.run_path(os.path.join(os.path.dirname(found.origin), "version.py"))
    if not version.get("cuda") and not version.get("hip"):
        return False
    program = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return not subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL).returncode


def _run(program: list[str], options: argparse.Namespace) -> None:
    """Runs a program in this process, as Python runs it."""
    hook = Hook.installed
    if hook is None:
        hook = Hook.from_variable() if VARIABLE in os.environ else Hook([])
        hook.install()
    hook.in_place = hook.in_place or options.in_place
    name, *arguments = program
    if name == "-m":
        name, *arguments = arguments
        hook.add([*_roots_of_module(name), *_roots_of_packages(options.also)])
        module, code = _module(name)
    else:
        if not os.path.isfile(name):
            sys.exit(f"{sys.executable}: can't open file {os.path.abspath(name)!r}")
        folder = os.path.dirname(os.path.realpath(name))
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = folder
        hook.add([_project(folder), *_roots_of_packages(options.also)])
        module, code = _script(hook, os.path.abspath(name))
    sys.argv[:] = [module.__file__ if program[0] == "-m" else name, *arguments]
    if not options.quiet:
        _print_summary(hook, module.__file__)
    sys.modules["__main__"] = module
    _hide_our_frames(module)
    exec(code, module.__dict__)


def _script(hook: Hook, path: str) -> tuple[types.ModuleType, types.CodeType]:
    """Returns an empty main module for a file, and the file's code."""
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=path, __builtins__=__builtins__, __loader__=SourceFileLoader("__main__", path)
    )
    code = hook.code(path)
    if code is None:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    return module, code


def _module(name: str) -> tuple[types.ModuleType, types.CodeType]:
    """Returns an empty main module for a module or a package, and its code."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        sys.exit(
            f"{sys.executable}: Error while finding module specification for {name!r}: {error}"
        )
    code = spec and spec.loader.get_code(spec.name)
    if code is None:
        sys.exit(f"{sys.executable}: No module named {name}, or it is not a program")
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=spec.origin,
        __builtins__=__builtins__,
        __loader__=spec.loader,
        __package__=spec.parent,
        __spec__=spec,
    )
    return module, code


def _project(start: str) -> str:
    """Returns the root of the git checkout with a folder; without a checkout, the folder."""
    folder = start
    while folder != os.path.dirname(folder):
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        folder = os.path.dirname(folder)
    return start


def _roots_of_module(name: str) -> list[str]:
    """Returns the project of the current folder, and the package of a module."""
    roots = [_project(os.path.realpath(os.curdir))]
    package = name.partition(".")[0]
    # A module of torch, such as torch.distributed.run, starts other programs.
    if package not in NEVER:
        roots += _roots_of_package(package)
    return roots


def _roots_of_packages(names: list[str]) -> list[str]:
    return [root for name in names for root in _roots_of_package(name)]


def _roots_of_package(name: str) -> list[str]:
    """Returns the folder of a package, the folders of a package without __init__.py, or the file
    of a module."""
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # `name` is a.b, and there is no a.
        found = None
    if found is None:
        sys.exit(f"error: Python finds no package {name}")
    if not found.has_location:
        return [os.path.realpath(folder) for folder in found.submodule_search_locations or ()]
    path = os.path.realpath(found.origin)
    return [os.path.dirname(path) if found.submodule_search_locations else path]


def _print_summary(hook: Hook, path: str) -> None:
    """Prints the summary, once for a program and all of its processes."""
    if os.environ.get("LOCAL_RANK", "0") != "0" or _SUMMARY_PRINTED in os.environ:
        return
    from k2_mac import summary

    lines = summary.lines(hook, path)
    if lines:
        os.environ[_SUMMARY_PRINTED] = "1"
    hooks = (os.path.join(folder, "k2_mac_run.pth") for folder in sys.path)
    if lines and not any(map(os.path.isfile, hooks)):
        lines.append("k2_mac_run.pth is not installed, so other processes run unchanged")
    for line in lines:
        print(f"k2_mac.run: {line}", file=sys.stderr)


def _hide_our_frames(module: types.ModuleType) -> None:
    """Makes tracebacks begin with the program, not with this file."""
    shows = sys.excepthook

    def shorter(kind, error, traceback):
        first = traceback
        while first is not None and first.tb_frame.f_globals is not module.__dict__:
            first = first.tb_next
        shows(kind, error.with_traceback(first or traceback), first or traceback)

    sys.excepthook = shorter


def _show(paths: list[str], in_place: bool) -> int:
    """Prints the changes of files as a diff."""
    from k2_mac import names, rules

    status = 0
    programs = (program for path in paths for program in _programs(os.path.normpath(path)))
    for path in programs:
        try:
            with open(path, "rb") as file:
                source = importlib.util.decode_source(file.read())
            changed = rules.change(source, in_place)
        except (OSError, SyntaxError, ValueError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            status = 1
            continue
        texts = (text.splitlines(keepends=True) for text in (source, changed.text))
        for line in difflib.unified_diff(*texts, path, path):
            print(line, end="" if line.endswith("\n") else "\n\\ No newline at end of file\n")
        for note in changed.notes:
            print(f"{path}:{note.line}: {note.text}: {names.NOTES[note.kind]}", file=sys.stderr)
    return status


def _programs(path: str) -> Iterator[str]:
    """Yields a file, or the Python files in a folder that are not symbolic links."""
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = os.path.join(folder, name)
            if name.endswith(".py") and os.path.isfile(path) and not os.path.islink(path):
                yield path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
