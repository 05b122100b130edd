"""Runs k2's style checkers on the lines that commits add.

k2's CI runs flake8 on k2's Python, and `scripts/check_style_cpplint.sh` on the C++ of the last
commit.  This module runs flake8 and cpplint on the files that commits change, and clang-format on
new files.  findings() leaves out findings on lines that the commits did not add.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from k2mps.core.git import split_z
from k2mps.series import hunks
from k2mps.stack.checkout import Checkout

_CXX = (".h", ".cc", ".cu")
# clang-format formats .mm as Objective-C, and does not know which header belongs to a .cu.
_FORMATTED = (".h", ".cc")
_WITH_COPYRIGHT = (*_CXX, ".mm", ".py", ".cmake", ".metal")
# k2's script edits cpplint to allow this text.
_ALLOWED = b"__host__ __device__ ("
_FINDING = re.compile(r"(.+?):(\d+):(?:\d+:)? +(.+)")


def findings(
    checkout: Checkout, base: str, tip: str, programs: Sequence[str] = ("cpplint", "flake8")
) -> Iterator[str]:
    """Yields findings, "path:line: text", on the lines that were added between two commits.

    Args:
      programs: which of cpplint, flake8 and clang-format to run.  cpplint takes 20 s for the whole
        series.
    """
    added: dict[str, set[int]] = {}
    how = "diff-tree -r --no-renames".split()
    for hunk in hunks.split(checkout.git.bytes(*how, "-p", "-U0", "--diff-filter=AM", base, tip)):
        lines = range(hunk.new_start, hunk.new_start + hunk.new_count)
        added.setdefault(hunk.path, set()).update(lines)
    new = split_z(checkout.git.bytes(*how, "-z", "--name-only", "--diff-filter=A", base, tip))
    with tempfile.TemporaryDirectory(prefix="k2mps-") as name:
        folder = Path(name).resolve()
        files = checkout.objects.files(
            tip, [*added, *new, ".clang-format", ".flake8", "CPPLINT.cfg"]
        )
        # If k2 has no .flake8, flake8 runs with its defaults.
        contents = {".flake8": b"", **{path: file.content for path, file in files.items()}}
        for path, content in contents.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        for path in new:
            if path.endswith(_WITH_COPYRIGHT) and b"Copyright" not in contents[path][:400]:
                yield f"{path}:1: no copyright header"
        for program, options, paths, endings in (
            ("cpplint", (f"--repository={folder}", "--quiet"), added, _CXX),
            ("flake8", ("--config=.flake8", "--no-show-source"), added, ".py"),
            ("clang-format", ("--style=file", "--dry-run"), new, _FORMATTED),
        ):
            paths = [path for path in paths if program in programs and path.endswith(endings)]
            # The programs in .venv have pinned versions.
            command = [Path(sys.executable).with_name(program), *options, *paths]
            both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            try:
                output = subprocess.run(command, cwd=folder, **both).stdout if paths else ""
            except OSError:
                yield f"{program} is not installed: nothing was checked with it; make build"
                continue
            for line in output.splitlines():
                match = _FINDING.fullmatch(line)
                if match and int(match[2]) in added.get(match[1], ()):
                    if _ALLOWED not in contents[match[1]].splitlines()[int(match[2]) - 1]:
                        yield f"{match[1]}:{match[2]}: {match[3]}"
