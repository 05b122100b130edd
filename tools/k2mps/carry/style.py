"""Whether the lines that commits add satisfy k2's style checkers.

k2's CI runs flake8 over its Python, and `scripts/check_style_cpplint.sh` over the C++ of the last
commit.  Here both read the files that commits change; only findings on added lines count.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from k2mps.series import hunks
from k2mps.stack.checkout import Checkout

_CXX = (".h", ".cc", ".cu")
# clang-format takes .mm for another language, and finds no header of a .cu.
_FORMATTED = (".h", ".cc")
_WITH_COPYRIGHT = (*_CXX, ".mm", ".py", ".cmake", ".metal")
# k2's script edits cpplint to allow this text.
_ALLOWED = b"__host__ __device__ ("
_FINDING = re.compile(r"(.+?):(\d+):(?:\d+:)? +(.+)")


def findings(checkout: Checkout, base: str, tip: str, with_cpplint: bool = True) -> Iterator[str]:
    """The findings of flake8 and cpplint on the lines added between two commits, as path:line:
    text; cpplint takes 20 s for the whole series."""
    added: dict[str, set[int]] = {}
    options = "diff-tree -r -p -U0 --no-renames --diff-filter=AM"
    for hunk in hunks.split(checkout.git.bytes(*options.split(), base, tip)):
        lines = range(hunk.new_start, hunk.new_start + hunk.new_count)
        added.setdefault(hunk.path, set()).update(lines)
    with tempfile.TemporaryDirectory(prefix="k2mps-") as name:
        folder = Path(name).resolve()
        contents = _write(checkout, tip, [*added, ".flake8", "CPPLINT.cfg"], folder)
        cxx = [path for path in contents if with_cpplint and path.endswith(_CXX)]
        python = [path for path in contents if path.endswith(".py")]
        for module, options, paths in (
            ("cpplint", (f"--repository={folder}", "--quiet"), cxx),
            ("flake8", ("--config=.flake8", "--no-show-source"), python),
        ):
            command = [sys.executable, "-m", module, *options, *paths]
            both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            output = subprocess.run(command, cwd=folder, **both).stdout if paths else ""
            for line in output.splitlines():
                match = _FINDING.fullmatch(line)
                if not match:
                    if "No module named" in line:
                        yield f"{module} is not installed: nothing was checked with it; make build"
                    continue
                path, number = match[1], int(match[2])
                if number not in added.get(path, ()):
                    continue
                if _ALLOWED not in contents[path].splitlines()[number - 1]:
                    yield f"{path}:{number}: {match[3]}"


def conventions(checkout: Checkout, tip: str, paths: Sequence[str]) -> Iterator[str]:
    """The new files of commit `tip` without a copyright header or, in C++, without k2's format."""
    # .venv's clang-format has a pinned version.
    program = Path(sys.executable).parent / "clang-format"
    with tempfile.TemporaryDirectory(prefix="k2mps-") as name:
        folder = Path(name)
        contents = _write(checkout, tip, [*paths, ".clang-format"], folder)
        for path in paths:
            if path.endswith(_WITH_COPYRIGHT) and b"Copyright" not in contents[path][:400]:
                yield f"{path} has no copyright header"
        for path in filter(lambda one: one.endswith(_FORMATTED), paths):
            try:
                formatted = subprocess.run(
                    [program, "--style=file", path], cwd=folder, capture_output=True, check=True
                ).stdout
            except (OSError, subprocess.CalledProcessError):
                yield "clang-format does not run here: C++ was not checked"
                return
            if formatted != contents[path]:
                yield f"{path} is not as k2's clang-format has it"


def _write(
    checkout: Checkout, commit: str, paths: Sequence[str], folder: Path
) -> Mapping[str, bytes]:
    """Writes the files that a commit has, of these paths; their contents by path."""
    contents = {path: file.content for path, file in checkout.files(commit, paths).items()}
    # Without a .flake8 of k2's, flake8 runs with its defaults.
    for path, content in {".flake8": b"", **contents}.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return contents
